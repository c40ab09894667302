package millrace_test

import (
	"log"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace"
)

// It has no output, so it is compiled and not run: it needs an interface and rights.
func ExampleOpen() {
	stack, err := millrace.Open("eth1", netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		log.Fatal(err)
	}
	l, err := stack.Listen("tcp", ":80")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(l, nil))
}

func TestTheReadmeShowsTheExampleOfOpen(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n")
	shown, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("README.md has no Go example")
	}
	_, rest, _ = strings.Cut(string(source), "func ExampleOpen() {\n")
	body, _, _ := strings.Cut(rest, "\n}\n")
	if body = strings.ReplaceAll("\n"+body, "\n\t", "\n"); body[1:]+"\n" != shown {
		t.Errorf("README.md shows\n%s\nthe example is\n%s", shown, body)
	}
}
