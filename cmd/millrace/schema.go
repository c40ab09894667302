package main

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/docs"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/internal/strictyaml"
)

// configFile is the configuration file of a command.
type configFile struct {
	command string // "gateway" or "stack"
	schema  func() *strictyaml.Schema
	check   string // the command that checks the file
	example string // of a small file
}

var configFiles = []configFile{
	{"gateway", config.Schema, "millrace gateway check -c FILE", `devices:
  - name: eth1
snat: 198.18.2.1
services:
  - name: web
    address: 198.18.1.1:80
    backends:
      - {name: b1, address: "198.18.2.11:8080"}
      - {name: b2, address: "198.18.2.12:8080", weight: 2}
    health: {type: http}
`},
	{"stack", stackd.Schema, "millrace stack up --check -c FILE", `devices:
  - name: eth1
    addresses: [198.18.0.2/24]
routes:
  - {to: default, via: 198.18.0.1}
services: [echo, http]
`},
}

// described returns the schema with the meanings of the reference page.
func (f *configFile) described() (*strictyaml.Schema, error) {
	rows, err := docs.Keys(f.command)
	if err != nil {
		return nil, err
	}
	s := f.schema()
	for _, k := range s.Keys() {
		k.Schema.Description = plainText(reference(rows, k.Path).Meaning)
	}
	return s, nil
}

// sections are the lists whose elements share keys with each other: limits and sources of a service, a listener or a
// route have the meaning of the top-level ones, health of a pool and announce of a listener that of a service's.
var sections = []string{"services[].", "pools[].", "listeners[].", "routes[]."}

// reference returns the row of a key: its own, or the one that sections have in common.
func reference(rows map[string]docs.Key, path string) docs.Key {
	if row, ok := rows[path]; ok {
		return row
	}
	for _, section := range sections {
		if rest, ok := strings.CutPrefix(path, section); ok {
			return cmp.Or(rows["services[]."+rest], rows[rest])
		}
	}
	return docs.Key{}
}

// plainText removes the marks of Markdown that the reference pages use.
func plainText(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }

func newSchema(c *console, f *configFile) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: `Print the JSON Schema (draft 2020-12) of the configuration file, for editors and
other tools. It describes the keys, their types, bounds and defaults. It does not
describe relations between keys: ` + f.check + ` checks those too.`,
		Example: `  millrace ` + f.command + ` schema >` + f.command + `.schema.json`,
		Args:    exactly(),
		RunE: command(func(context.Context, []string) error {
			s, err := f.described()
			if err != nil {
				return err
			}
			e := json.NewEncoder(c.out)
			e.SetIndent("", "  ")
			e.SetEscapeHTML(false)
			return e.Encode(s)
		}),
	}
}
