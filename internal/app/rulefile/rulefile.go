// Package rulefile reads files of rules from the disk: access rules (package filter), inspection rules (package
// signature), and files that name either.
package rulefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
)

// Files holds the content of files of rules.
type Files struct {
	Inspection []*signature.File     // texts of inspection rules
	Access     []*filter.File        // files with access rules
	Wrong      []*filter.SyntaxError // of Access
	paths      int
}

// Read parses files of rules, and those that they name. An error is about a file that cannot be read; what is wrong in
// the files is in the result.
func Read(cfg *signature.Config, paths ...string) (*Files, error) {
	all := &Files{paths: len(paths)}
	if cfg == nil {
		cfg = &signature.Config{}
	}
	if cfg.Read == nil {
		with := *cfg
		with.Read, cfg = beside, &with
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if !filter.IsFile(string(text)) {
			all.Inspection = append(all.Inspection, signature.Parse(path, string(text), cfg))
			continue
		}
		file, wrong := filter.ParseFile(path, string(text), open)
		all.Access, all.Wrong = append(all.Access, file), append(all.Wrong, wrong...)
		for _, t := range file.Inspect {
			all.Inspection = append(all.Inspection, signature.Parse(t.Name, t.Text, cfg))
		}
	}
	return all, nil
}

// beside reads a file that a rule names, beside the file of the rule.
func beside(rules, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(rules), name)
	}
	return open(name)
}

// open is filter.Open for files.
func open(name string) (string, error) {
	b, err := os.ReadFile(name)
	if pe := new(fs.PathError); errors.As(err, &pe) {
		err = fmt.Errorf("%s: %w", pe.Path, pe.Err)
	}
	return string(b), err
}

// Errors returns what is wrong, the access rules first. With lenient what is not supported is none.
func (f *Files) Errors(lenient bool) (all []error) {
	for _, e := range f.Wrong {
		if e.Unsupported == "" || !lenient {
			all = append(all, e)
		}
	}
	for _, file := range f.Inspection {
		for _, e := range file.Errors {
			all = append(all, e)
		}
		for _, e := range file.Skipped {
			if !lenient {
				all = append(all, e)
			}
		}
	}
	return all
}

// Compile returns the inspection rules that load.
func (f *Files) Compile() (*inspect.Rules, error) {
	var all []*signature.Rule
	for _, file := range f.Inspection {
		all = append(all, file.Rules...)
	}
	return inspect.Compile(all)
}
