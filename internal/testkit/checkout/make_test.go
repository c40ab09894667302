package checkout

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runMake runs make in the repository where the programs of fake stand before those of the system.
// It only prints what it would do.
func runMake(t *testing.T, fake map[string]string, target string) (out string, ok bool) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, prints := range fake {
		script := "#!/bin/sh\ncase \"$1\" in version|-u) echo \"" + prints + "\";; *) echo unexpected >&2; exit 1;; esac\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("make", "-n", "--no-print-directory", target)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "MAKEFLAGS=", "MAKELEVEL=")
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

func TestMakeRefusesInOneLineBeforeItBuilds(t *testing.T) {
	for _, c := range []struct {
		name   string
		fake   map[string]string
		target string
		want   string
	}{
		{"an old Go", map[string]string{"go": "go version go1.19.8 linux/amd64"}, "test", "`go` is 1.19.8: install it from https://go.dev/dl"},
		{"no Go", map[string]string{"go": "not found"}, "build", "Go is not installed"},
		{"another user", map[string]string{"id": "1000"}, "run", "needs root: sudo env PATH="},
	} {
		out, ok := runMake(t, c.fake, c.target)
		if ok || strings.Count(out, "\n") != 1 || !strings.Contains(out, c.want) {
			t.Errorf("%s: make %s says %q", c.name, c.target, out)
		}
	}
}

func TestMakeTakesANewerGo(t *testing.T) {
	for _, version := range []string{"go1.26.3", "go1.27rc1", "go1.30.1", "devel go1.28-abcdef"} {
		if out, ok := runMake(t, map[string]string{"go": "go version " + version + " linux/amd64"}, "build"); !ok {
			t.Errorf("%s: %s", version, out)
		}
	}
	if out, ok := runMake(t, map[string]string{"go": "not found"}, "help"); !ok {
		t.Errorf("make help needs Go: %s", out)
	}
}

// TestNetnsHasEveryTestInNamespaces: make netns runs each package with a test that imports testnet.
func TestNetnsHasEveryTestInNamespaces(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/millrace/millrace"
	cmd := exec.Command("make", "-s", "--no-print-directory", "list-netns")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(out))
	found := 0
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "shared") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return nil // testdata
		}
		for _, i := range f.Imports {
			if i.Path.Value != `"`+module+`/internal/testkit/testnet"` {
				continue
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			found++
			if pkg := filepath.Join(module, dir); !slices.Contains(listed, pkg) {
				t.Errorf("make netns does not run %s", pkg)
			}
		}
		return nil
	})
	if err != nil || found < 20 || !slices.Contains(listed, module+"/internal/testkit/testnet") {
		t.Errorf("%v; %d imports in tests, %d packages listed", err, found, len(listed))
	}
}
