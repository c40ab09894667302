package socket

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/checkout"
)

// mostModules bounds what a program sees in `go list -m all`, itself and Millrace included: their
// versions are forced on it.
const mostModules = 18

// notLinked are modules that Millrace uses elsewhere and that such a program must not link.
var notLinked = []string{
	"github.com/gopacket/gopacket", "github.com/andybalholm/brotli", "github.com/spf13/cobra", "github.com/prometheus/client_golang",
	"go.yaml.in/yaml/v3", "gvisor.dev/gvisor", "google.golang.org/grpc", "github.com/quic-go/quic-go",
}

// TestAProgramThatImportsSocketSeesFewModules makes such a program and asks the go command.
func TestAProgramThatImportsSocketSeesFewModules(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26.3\n\nrequire github.com/millrace/millrace v0.0.0\n\n" +
			"replace github.com/millrace/millrace => " + root + "\n",
		"go.sum":  string(sums),
		"main.go": "package main\n\nimport _ \"github.com/millrace/millrace/socket\"\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	linked := lines(t, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	for _, m := range notLinked {
		if slices.Contains(linked, m) {
			t.Errorf("links %s", m)
		}
	}
	if !slices.Contains(linked, "github.com/millrace/millrace") {
		t.Errorf("links only %v", linked)
	}
	// -deps has added what the program needs itself to its go.mod, as `go mod tidy` would.
	if seen := lines(t, dir, "list", "-m", "all"); len(seen) > mostModules {
		t.Errorf("sees %d modules, want at most %d:\n%s", len(seen), mostModules, strings.Join(seen, "\n"))
	}
}

// lines runs the go command in dir and returns the distinct lines that it prints. `make deps` brings what it
// needs into the module cache.
func lines(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	all := strings.Fields(strings.ReplaceAll(string(out), " ", "@")) // "path v1.2.3" is one
	slices.Sort(all)
	return slices.Compact(all)
}
