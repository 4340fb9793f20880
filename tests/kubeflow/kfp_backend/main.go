// Command kfp_backend hands a pipeline file to the Kubeflow Pipelines API server's own packages, as
// uploading and running it would, and prints the resulting Argo workflow.
//
//	kfp_backend RUN_ID FILE [NAME=JSON ...]
//
// With TEMPLATE_DEFAULTS in its environment, JSON, it merges them into all templates as Argo does.
// If they reject the pipeline, it fails with the step and their message on stderr.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	wfv1 "github.com/argoproj/argo-workflows/v3/pkg/apis/workflow/v1alpha1"
	"github.com/kubeflow/pipelines/backend/src/apiserver/common"
	"github.com/kubeflow/pipelines/backend/src/apiserver/config/proxy"
	"github.com/kubeflow/pipelines/backend/src/apiserver/model"
	"github.com/kubeflow/pipelines/backend/src/apiserver/template"
	"github.com/kubeflow/pipelines/backend/src/common/util"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
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
	text := workflow(file, os.Args[1], parameters).ToStringForStore()
	if defaults := os.Getenv("TEMPLATE_DEFAULTS"); defaults != "" {
		text = merged(text, []byte(defaults))
	}
	fmt.Println(text)
}

// merged does to every template what `mergedTemplateDefaultsInto` of Argo's controller does.
func merged(text string, defaults []byte) string {
	var flow wfv1.Workflow
	if err := json.Unmarshal([]byte(text), &flow); err != nil {
		exit("defaults", err)
	}
	for i := range flow.Spec.Templates {
		own, err := json.Marshal(flow.Spec.Templates[i])
		if err != nil {
			exit("defaults", err)
		}
		result, err := strategicpatch.StrategicMergePatch(defaults, own, wfv1.Template{})
		if err != nil {
			exit("defaults", err)
		}
		if err := json.Unmarshal(result, &flow.Spec.Templates[i]); err != nil {
			exit("defaults", err)
		}
	}
	result, err := json.Marshal(flow)
	if err != nil {
		exit("defaults", err)
	}
	return string(result)
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
