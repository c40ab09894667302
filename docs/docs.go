// Package docs embeds the reference pages of the configuration files, so that manual pages and JSON Schemas say the same.
package docs

import (
	"embed"
	"regexp"
	"strings"
)

//go:embed gateway-keys.md http-gateway.md stack.md
var pages embed.FS

// Key is a row of the table of keys.
type Key struct {
	Path    string // such as "services[].backends[].weight"
	Default string // in Markdown, as the page has it: a value, "required" or "none"
	Meaning string // in Markdown
}

var keyRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| ([^|]*) \\| ([^|]*) ?\\|$")

// files are the pages of a command.
var files = map[string][]string{"gateway": {"gateway-keys.md", "http-gateway.md"}, "stack": {"stack.md"}}

// Keys returns the keys that the pages of a command, "gateway" or "stack", list, by path.
func Keys(command string) (map[string]Key, error) {
	keys := map[string]Key{}
	for _, file := range files[command] {
		page, err := pages.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range keyRow.FindAllStringSubmatch(string(page), -1) {
			keys[m[1]] = Key{m[1], strings.TrimSpace(m[2]), strings.TrimSpace(m[3])}
		}
	}
	return keys, nil
}
