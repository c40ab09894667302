// Package tools has no code: the go.mod beside it names the linters and generators that `make lint`
// and `make generate` run, so that their modules are no requirement of Millrace.
package tools
