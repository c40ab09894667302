package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

// validator returns the resolved schema that a command prints.
func validator(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	code, out, errs := run(name, "schema")
	if code != exitOK {
		t.Fatal(errs)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// value returns a YAML file as JSON has it.
func value(t *testing.T, src string) (v any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(src), &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestExamplesSatisfyTheirSchemas(t *testing.T) {
	for i := range configFiles {
		f := &configFiles[i]
		r := validator(t, f.command)
		src, err := os.ReadFile("../../examples/" + f.command + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(src), f.example, "x-anything: [1]\n" + f.example} {
			if err := r.Validate(value(t, text)); err != nil {
				t.Errorf("%s: %v in\n%s", f.command, err, text)
			}
		}
		file := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(file, []byte(f.example), 0o644); err != nil {
			t.Fatal(err)
		}
		check := strings.Fields(strings.Replace(f.check, "FILE", file, 1))[1:]
		if code, _, errs := run(check...); code != exitOK {
			t.Errorf("the example of %s: %s", f.command, errs)
		}
	}
}

func TestSchemasRejectWhatTheDecoderRejects(t *testing.T) {
	for name, edits := range map[string][][2]string{
		"gateway": {
			{"name: eth1", "nmae: eth1"},
			{"weight: 2", "weight: 1001"},
			{"weight: 2", "weight: two"},
			{"type: http", "type: htpt"},
			{"snat: 198.18.2.1", "snat: []"},
			{"services:", "x-services:"},
			{"weight: 2", "x-weight: 2"},
			{"{type: http}", "{interval: 3 s}"},
			{"snat: 198.18.2.1", "queues: 1"},
			{"name: eth1", "name: eth1\n    queues: 65"},
			{"name: eth1", "name: eth1\n    ring: 3000"},
		},
		"stack": {{"name: eth1", "nmae: eth1"}, {"[echo, http]", "[ehco]"}, {"{to: default,", "{"}, {"services:", "tcp: {nodelay: 1}\nservices:"}},
	} {
		r := validator(t, name)
		for i := range configFiles {
			f := &configFiles[i]
			if f.command != name {
				continue
			}
			for _, e := range edits {
				text := strings.Replace(f.example, e[0], e[1], 1)
				if text == f.example || r.Validate(value(t, text)) == nil {
					t.Errorf("%s: %q for %q is accepted", name, e[1], e[0])
				}
			}
		}
	}
}

func TestEveryKeyOfTheSchemasIsDescribed(t *testing.T) {
	for i := range configFiles {
		s, err := configFiles[i].described()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range s.Keys() {
			form := k.Schema.Form()
			if form == "" || k.Schema.Description == "" && form != "list of mappings" && form != "duration, 0s to 720h0m0s" {
				t.Errorf("%s: %s is %q, %q", configFiles[i].command, k.Path, form, k.Schema.Description)
			}
		}
	}
}

func TestManualPagesOfConfigurationFilesHaveEveryKey(t *testing.T) {
	dir := t.TempDir()
	if code, _, err := run("man", "--section", "5", "--dir", dir); code != exitOK {
		t.Fatal(err)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "*.1")); len(list) > 0 {
		t.Errorf("--section 5 writes %v", list)
	}
	if code, _, err := run("man", "--section", "2", "--dir", dir); code != exitUsage {
		t.Errorf("--section 2: %d %s", code, err)
	}
	for i := range configFiles {
		f := &configFiles[i]
		path := filepath.Join(dir, f.pageName()+".5")
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range f.schema().Keys() {
			if !strings.Contains(string(page), ".B "+escapeRoff(k.Path)+"\n") {
				t.Errorf("%s lacks %s", path, k.Path)
			}
		}
		if _, err := exec.LookPath("man"); err != nil {
			continue // rendering is for machines that have it; TestManualPagesAreWrittenAndRender says so
		}
		out, err := exec.Command("man", "--warnings", "-l", path).CombinedOutput()
		text := backspaces.ReplaceAllString(string(out), "")
		for _, want := range []string{"NAME", "KEYS", "devices[].name", "text; required.", "EXAMPLE", "- name: eth1"} {
			if err != nil || !strings.Contains(text, want) || strings.Contains(text, "warning:") {
				t.Errorf("%v: no %q in\n%s", err, want, text)
			}
		}
	}
}
