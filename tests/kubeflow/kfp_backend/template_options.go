//go:build template_options

// Releases from 2.15 on.

package main

import "github.com/kubeflow/pipelines/backend/src/apiserver/template"

func newTemplate(file []byte) (template.Template, error) {
	return template.New(file, template.TemplateOptions{})
}

func runOptions(id string) template.RunWorkflowOptions {
	return template.RunWorkflowOptions{RunID: id}
}
