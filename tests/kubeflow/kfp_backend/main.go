// Command kfp_backend hands a pipeline file to the Kubeflow Pipelines API server's own packages,
// as an upload and then a run of it would, and prints the Argo workflow that they make of it.
//
//	kfp_backend [-run ID] FILE [NAME=JSON ...]
//
// It exits with 3 where they refuse the pipeline, with the step and their message on stderr.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/kubeflow/pipelines/backend/src/apiserver/common"
	"github.com/kubeflow/pipelines/backend/src/apiserver/config/proxy"
	"github.com/kubeflow/pipelines/backend/src/apiserver/model"
	"github.com/kubeflow/pipelines/backend/src/common/util"
)

const (
	failed  = 1
	refused = 3
)

var runID = flag.String("run", "5f3c2b1a-0000-4000-8000-000000000000", "the run's `ID`")

func main() {
	flag.Parse()
	if flag.NArg() < 1 {
		exit(failed, "usage", fmt.Errorf("kfp_backend [-run ID] FILE [NAME=JSON ...]"))
	}
	file, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		exit(failed, "read", err)
	}
	parameters, err := jsonObject(flag.Args()[1:])
	if err != nil {
		exit(failed, "parameters", err)
	}
	proxy.InitializeConfigWithEmptyForTests()
	fmt.Println(workflow(file, parameters).ToStringForStore())
}

// workflow does what the API server's resource manager does when it takes a pipeline and a run.
func workflow(file []byte, parameters string) util.ExecutionSpec {
	pipeline, err := newTemplate(file)
	if err != nil {
		exit(refused, "upload", err)
	}
	if !pipeline.IsV2() {
		exit(refused, "upload", fmt.Errorf("it is an Argo workflow, as pipelines of version 1 are"))
	}
	if err := common.ValidatePipelineName(pipeline.V2PipelineName()); err != nil {
		exit(refused, "upload", err)
	}
	run := &model.Run{DisplayName: "run", Namespace: "kubeflow"}
	setText(&run.PipelineSpec.RuntimeConfig.Parameters, parameters)
	spec, err := pipeline.RunWorkflow(run, runOptions(*runID))
	if err != nil {
		exit(refused, "compile", err)
	}
	if err := spec.Validate(false, false); err != nil {
		exit(refused, "validate", err)
	}
	return spec
}

// setText takes both types that parameters have had: string and LargeText.
func setText[T ~string](field *T, text string) {
	*field = T(text)
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

func exit(status int, step string, err error) {
	fmt.Fprintf(os.Stderr, "kfp_backend: %s: %v\n", step, err)
	os.Exit(status)
}
