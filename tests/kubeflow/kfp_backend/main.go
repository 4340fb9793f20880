// Command kfp_backend hands a pipeline file to the Kubeflow Pipelines API server's own packages, as
// uploading and running it would, and prints the resulting Argo workflow.
//
//	kfp_backend RUN_ID FILE [NAME=JSON ...]
//
// If they reject the pipeline, it fails with the step and their message on stderr.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/kubeflow/pipelines/backend/src/apiserver/common"
	"github.com/kubeflow/pipelines/backend/src/apiserver/config/proxy"
	"github.com/kubeflow/pipelines/backend/src/apiserver/model"
	"github.com/kubeflow/pipelines/backend/src/apiserver/template"
	"github.com/kubeflow/pipelines/backend/src/common/util"
)

func main() {
	file, err := os.ReadFile(os.Args[2])
	if err != nil {
		exit("read", err)
	}
	parameters, err := jsonObject(os.Args[3:])
	if err != nil {
		exit("parameters", err)
	}
	proxy.InitializeConfigWithEmptyForTests()
	fmt.Println(workflow(file, os.Args[1], parameters).ToStringForStore())
}

// workflow does what the API server's resource manager does with a pipeline and a run.
func workflow(file []byte, id string, parameters string) util.ExecutionSpec {
	pipeline, err := template.New(file, false, nil)
	if err != nil {
		exit("upload", err)
	}
	if !pipeline.IsV2() {
		exit("upload", fmt.Errorf("it is an Argo workflow, as pipelines of version 1 are"))
	}
	if err := common.ValidatePipelineName(pipeline.V2PipelineName()); err != nil {
		exit("upload", err)
	}
	run := &model.Run{DisplayName: "run", Namespace: "kubeflow"}
	run.PipelineSpec.RuntimeConfig.Parameters = parameters
	spec, err := pipeline.RunWorkflow(run, template.RunWorkflowOptions{RunId: id})
	if err != nil {
		exit("compile", err)
	}
	if err := spec.Validate(false, false); err != nil {
		exit("validate", err)
	}
	return spec
}

func jsonObject(arguments []string) (string, error) {
	values := map[string]json.RawMessage{}
	for _, argument := range arguments {
		name, value, found := strings.Cut(argument, "=")
		if !found || !json.Valid([]byte(value)) {
			return "", fmt.Errorf("%q is not NAME=JSON", argument)
		}
		values[name] = json.RawMessage(value)
	}
	text, err := json.Marshal(values)
	return string(text), err
}

func exit(step string, err error) {
	fmt.Fprintf(os.Stderr, "kfp_backend: %s: %v\n", step, err)
	os.Exit(1)
}
