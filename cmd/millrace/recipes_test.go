package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// recipes are the pages whose commands TestRecipesRun runs.
const recipes = "../../docs/recipes"

// blockKind is what a part of a recipe is to the test.
type blockKind uint8

const (
	blockRun    blockKind = iota // commands: they are run, and must succeed
	blockFile                    // a file, whose first line is a comment with its path
	blockOutput                  // what the commands before it print, in this order; "..." stands for anything
	blockManual                  // commands that need what the sandbox has not; the text before says which
	blockHidden                  // commands that a reader does not see: what else the machine of the page has
)

// block is a part of a recipe.
type block struct {
	kind blockKind
	line int // in the page
	text string
	path string // of blockFile
}

var (
	pathLine = regexp.MustCompile(`^# (/?[\w.-]+(?:/[\w.-]+)*\.\w+)\n`)
	fence    = regexp.MustCompile("^```(\\w*)$")
)

// blocksOf returns the blocks of a page. Whatever is neither run, nor written, nor compared, nor marked is an error.
func blocksOf(page string) (blocks []block, err error) {
	var b *block
	prose := "" // since the block before
	for i, line := range strings.SplitAfter(page, "\n") {
		switch text := strings.TrimSuffix(line, "\n"); {
		case b == nil && text == "<!-- test":
			b = &block{kind: blockHidden, line: i + 1}
		case b == nil && fence.MatchString(text):
			b = &block{line: i + 1}
			if b.kind, err = kindOf(fence.FindStringSubmatch(text)[1], prose); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		case b == nil && strings.HasPrefix(text, "<!-- test"):
			return nil, fmt.Errorf("line %d: hidden commands begin in the line behind <!-- test", i+1)
		case b == nil:
			prose += line
		case text == "```" || text == "-->":
			if m := pathLine.FindStringSubmatch(b.text); b.kind == blockFile && m == nil {
				return nil, fmt.Errorf("line %d: the first line of a file is a comment with its path", b.line)
			} else if b.kind == blockFile {
				b.path = m[1]
			}
			blocks, b, prose = append(blocks, *b), nil, ""
		default:
			b.text += line
		}
	}
	if b != nil {
		err = fmt.Errorf("line %d: the block does not end", b.line)
	}
	return blocks, err
}

// kindOf returns the kind of a fenced block by its language and the text in front of it.
func kindOf(language, prose string) (blockKind, error) {
	switch {
	case language == "sh":
		return blockRun, nil
	case language == "text":
		return blockOutput, nil
	case language == "console" && strings.Contains(strings.Join(strings.Fields(prose), " "), "not run by the tests"):
		return blockManual, nil
	case language == "console":
		return 0, errors.New(`"not run by the tests", and why, must stand above a block of console`)
	case language == "":
		return 0, errors.New("a block needs a language: sh, text, console, or that of a file")
	}
	return blockFile, nil
}

// pageScript returns what runs the blocks one after the other in one shell, with a mark before the output of each.
func pageScript(blocks []block) string {
	var s strings.Builder
	for i, b := range blocks {
		fmt.Fprintf(&s, "mark %d\n", i)
		switch b.kind {
		case blockRun, blockHidden:
			s.WriteString(b.text)
		case blockFile:
			fmt.Fprintf(&s, "mkdir -p \"$(dirname %s)\"\ncat >%[1]s <<'END OF FILE'\n%sEND OF FILE\n", b.path, b.text)
			if strings.HasSuffix(b.path, "gateway.yaml") {
				fmt.Fprintf(&s, "millrace gateway check -c %s\n", b.path)
			}
		}
	}
	return s.String()
}

// prologue makes the machine of a page: a root of its own over that of this machine, whose changes are in memory, and a network of its
// own. mark is a line that no program prints.
const prologue = `set -euo pipefail
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp "$1.files/"* "$1/root/usr/local/bin/"
mount -t tmpfs none "$1/root/tmp"; mount -t tmpfs none "$1/root/run"
mount -t proc none "$1/root/proc"; mount -t sysfs none "$1/root/sys"; mount --rbind /dev "$1/root/dev"
ip link set lo up
mkdir "$1/root/recipe"
cp "$2" "$1/root/recipe.sh"
exec chroot "$1/root" /bin/bash -c 'cd /recipe; export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; hostname gateway; . /recipe.sh'
`

const recipeHead = `set -euo pipefail
mark() { printf '\n@@@ %s\n' "$1"; }
`

// TestRecipesRun runs each command of docs/recipes in namespaces and a root of its own, checks each configuration that they have,
// and compares what is printed with what the pages say is printed.
func TestRecipesRun(t *testing.T) {
	t.Parallel()
	testnet.For(t, "mr-recipe") // root, or a skip
	testnet.Program(t, "curl", "openssl", "haproxy", "nginx", "ss", "setpriv", "systemd-analyze")
	pages, err := filepath.Glob(filepath.Join(recipes, "*.md"))
	if err != nil || len(pages) < 8 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	files := recipeFiles(t)
	for _, path := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
			t.Parallel() // each page has a machine of its own, and waits most of its time
			runRecipe(t, path, files)
		})
	}
}

// The versions of the program before and after an upgrade. They are of one length: only one is built, and the other one written over it.
const (
	recipeVersion = "v1.4.2+recipes"
	recipeNext    = "v1.5.0+recipes"
)

// recipeFiles returns a folder with the programs that the pages name, and that Debian has not.
func recipeFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(built(t, ".", "-ldflags", "-s -w -X main.version="+recipeVersion, "."))
	if err != nil {
		t.Fatal(err)
	}
	next := bytes.ReplaceAll(program, []byte(recipeVersion), []byte(recipeNext))
	if bytes.Equal(next, program) {
		t.Fatal("the program does not have its version")
	}
	for name, text := range map[string][]byte{"millrace": program, "millrace-next": next} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, from := range map[string]string{
		"standin": self, "ociimage": built(t, "../ociimage", "."), "gateway.yaml.installed": "../../deploy/gateway.yaml",
		"millrace-gateway.service.installed": "../../deploy/millrace-gateway.service", "millrace.sysusers.installed": "../../deploy/millrace.sysusers",
	} {
		if out, err := exec.Command("cp", from, filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	for _, name := range []string{"podman", "kubectl"} {
		text := "#!/bin/sh\n" + asStandIn + "=" + name + " exec /usr/local/bin/standin \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// recipeTime bounds a page, so that one that waits for ever ends.
const recipeTime = 3 * time.Minute

func runRecipe(t *testing.T, path, files string) {
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := blocksOf(string(page))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	dir := t.TempDir()
	root, source := filepath.Join(dir, "m"), filepath.Join(dir, "recipe.sh")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Symlink(files, root+".files"), os.WriteFile(source, []byte(recipeHead+pageScript(blocks)), 0o644)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), recipeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", prologue, "recipe", root, source)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL,
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	printed, last := outputs(out.String(), len(blocks))
	if err != nil {
		t.Fatalf("%s:%d: %v\n%s", path, blocks[last].line, err, out.String())
	}
	for i, b := range blocks {
		if b.kind != blockOutput {
			continue
		}
		if wrong := differs(b.text, printed[i-1]); wrong != "" {
			t.Errorf("%s:%d: %q is not printed, in this order, by the commands above. They print:\n%s", path, b.line, wrong, printed[i-1])
		}
	}
}

// outputs returns what each block has printed, and the last that was begun.
func outputs(text string, blocks int) (of []string, last int) {
	of = make([]string, blocks)
	for _, part := range strings.Split(text, "\n@@@ ")[1:] {
		number, rest, _ := strings.Cut(part, "\n")
		if n, err := fmt.Sscan(number, &last); n == 1 && err == nil {
			of[last] = rest
		}
	}
	return of, last
}

// differs returns the first line of want that got does not have behind those before it; "" where it has all.
func differs(want, got string) string {
	lines := strings.Split(got, "\n")
	for _, w := range strings.Split(strings.TrimSuffix(want, "\n"), "\n") {
		re := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(w)), `\.\.\.`, ".*") + "$")
		i := 0
		for i < len(lines) && !re.MatchString(strings.TrimSpace(lines[i])) {
			i++
		}
		if i == len(lines) {
			return w
		}
		lines = lines[i+1:]
	}
	return ""
}

// Metrics that the recipes name are those that there are.
func TestRecipesNameMetricsThatThereAre(t *testing.T) {
	there := documented(t)
	pages, err := filepath.Glob(filepath.Join(recipes, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(len(pages), err)
	}
	found := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`(millrace_[a-z0-9_]+)`").FindAllStringSubmatch(string(text), -1) {
			if found++; there[name[1]] == nil {
				t.Errorf("%s: there is no metric %s", path, name[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("%d metrics found", found)
	}
}

func TestBlocksOfRecipes(t *testing.T) {
	for page, wrong := range map[string]string{
		"text\n```sh\ntrue\n```\n":                                    "",
		"```\ntrue\n```\n":                                            "needs a language",
		"```console\n$ docker ps\n```\n":                              "not run by the tests",
		"These are not run\nby the tests: x.\n```console\n$ a\n```\n": "",
		"```yaml\nlisteners: []\n```\n":                               "a comment with its path",
		"```yaml\n# gateway.yaml\nlisteners: []\n```\n":               "",
		"<!-- test false -->\n":                                       "hidden commands begin",
		"```sh\ntrue\n":                                               "does not end",
	} {
		if _, err := blocksOf(page); (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", page, err, wrong)
		}
	}
	for _, c := range []struct{ want, got, wrong string }{
		{"a\nc\n", "a\nb\n c\n", ""},
		{"c\na\n", "a\nb\nc\n", "a"},
		{"pid 12...\n", "pid 1234, gap 3\n", ""},
		{"pid\n", "pid 1234\n", "pid"},
	} {
		if got := differs(c.want, c.got); got != c.wrong {
			t.Errorf("%q in %q: %q, want %q", c.want, c.got, got, c.wrong)
		}
	}
}
