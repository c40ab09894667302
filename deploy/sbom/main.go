// Command sbom writes the bill of materials of a Go program, in CycloneDX 1.6, to standard output: what `go version -m` says of it. The
// same program gives the same bytes.
//
//	go run ./deploy/sbom bin/millrace v1.0.0 >millrace.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// document is a bill of materials.
type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

// component is a module, or the program itself.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Scope   string `json:"scope,omitempty"`
	Ref     string `json:"bom-ref,omitempty"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	if err := out.Encode(describe(info, os.Args[2])); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// describe returns the bill of what a program was built of. The standard library is the toolchain's. Modules of the repository itself,
// which replace others by a folder, have the version of the program.
func describe(info *debug.BuildInfo, version string) document {
	program := component{Type: "application", Name: info.Path, Version: version, Ref: "program"}
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{program}}
	d.Components = append(d.Components, library("std", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, m := range info.Deps {
		if r := m.Replace; r != nil && r.Version == "" { // a folder
			d.Components = append(d.Components, library(m.Path, version, ""))
			continue
		} else if r != nil {
			m = r
		}
		d.Components = append(d.Components, library(m.Path, m.Version, m.Sum))
	}
	return d
}

// library returns a module. Its sum is that of go.sum (h1: SHA-256 of the hashes of its files), which no algorithm of CycloneDX names: it
// stands in the reference.
func library(path, version, sum string) component {
	c := component{Type: "library", Name: path, Version: version, Scope: "required"}
	c.PURL = "pkg:golang/" + path + "@" + version
	if c.Ref = c.PURL; sum != "" {
		c.Ref += "?checksum=" + sum
	}
	return c
}
