//go:build template_bytes

// Releases up to 2.5.

package main

import "github.com/kubeflow/pipelines/backend/src/apiserver/template"

func newTemplate(file []byte) (template.Template, error) {
	return template.New(file)
}

func runOptions(id string) template.RunWorkflowOptions {
	return template.RunWorkflowOptions{RunId: id}
}
