package qpack

import (
	browsers "github.com/millrace/millrace/internal/testkit/browser"
)

// browser returns the fields of a request as Chromium sends them for a page.
func browser(path string) (fields []Field) {
	for _, f := range browsers.Page(path) {
		fields = append(fields, Field{Name: f[0], Value: f[1]})
	}
	return fields
}
