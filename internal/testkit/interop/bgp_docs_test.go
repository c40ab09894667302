package interop

import (
	"os"
	"strings"
	"testing"
)

// routerOfThePage returns a configuration of docs/bgp.md, which the tests use as it is there.
func routerOfThePage(t testing.TB, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "<!-- "+name+" -->\n```\n")
	text, _, ok2 := strings.Cut(rest, "```\n")
	if !ok || !ok2 {
		t.Fatalf("docs/bgp.md has no configuration of %s", name)
	}
	return text
}
