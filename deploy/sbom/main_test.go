package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestBillOfAProgram(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.3", Path: "example.org/cmd",
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.2.3", Sum: "h1:abc="},
			{Path: "example.org/root", Version: "v0.0.0", Replace: &debug.Module{Path: "../"}},
			{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v1.0.1", Sum: "h1:d="}},
		},
	}
	d := describe(info, "v9")
	var got []string
	for _, c := range d.Components {
		got = append(got, c.Ref)
	}
	want := "pkg:golang/std@1.26.3 pkg:golang/example.org/a@v1.2.3?checksum=h1:abc= pkg:golang/example.org/root@v9 pkg:golang/example.org/fork@v1.0.1?checksum=h1:d="
	if s := strings.Join(got, " "); s != want || d.Metadata.Component.Version != "v9" {
		t.Errorf("%s\nwant %s", s, want)
	}
}
