//go:build template_arguments

// Releases 2.14.

package main

import "github.com/kubeflow/pipelines/backend/src/apiserver/template"

func newTemplate(file []byte) (template.Template, error) {
	return template.New(file, false, nil)
}

func runOptions(id string) template.RunWorkflowOptions {
	return template.RunWorkflowOptions{RunId: id}
}
