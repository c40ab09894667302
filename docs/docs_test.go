package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pagesOf returns the text of the pages that the patterns match, by path from the root.
func pagesOf(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join("..", p))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", p, len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			texts[f] = string(text)
		}
	}
	return texts
}

func TestLinksOfPagesLeadToFiles(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
	for path, text := range pagesOf(t, "*.md", "docs/*.md", "docs/design/*.md", "docs/recipes/*.md", "bench/*.md") {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

func TestPagesKeepTheirLength(t *testing.T) {
	for pattern, most := range map[string]int{"README.md": 600, "docs/design/*.md": 1200} {
		for path, text := range pagesOf(t, pattern) {
			if n := len(strings.Fields(text)); n > most {
				t.Errorf("%s has %d words, at most %d", path, n, most)
			}
		}
	}
}

// The first section is "Unreleased"; what came before the first release takes 60 lines; a release has its date.
func TestChangelogHasReleases(t *testing.T) {
	_, text, _ := strings.Cut(pagesOf(t, "CHANGELOG.md")[filepath.Join("..", "CHANGELOG.md")], "\n## ")
	release := regexp.MustCompile(`^\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d$`)
	for i, section := range strings.Split(text, "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		switch lines := strings.Count(body, "\n"); {
		case (i == 0) != (title == "Unreleased"):
			t.Errorf("section %d of CHANGELOG.md is %q; Unreleased is the first and the only one of that name", i+1, title)
		case title == "Before 0.1" && lines > 65:
			t.Errorf("%q has %d lines, at most 65: it sums up, the history has the details", title, lines)
		case i > 0 && title != "Before 0.1" && !release.MatchString(title):
			t.Errorf("%q is no release: 1.2.3 - 2026-01-31", title)
		}
	}
}

// The Makefile has what a user calls, in 150 lines; targets of one purpose are in files that it includes. `make help` lists
// all that have a description.
func TestMakefileIsShortAndItsHelpWhole(t *testing.T) {
	makefile := filepath.Join("..", "Makefile")
	text, err := os.ReadFile(makefile)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 150 {
		t.Errorf("the Makefile has %d lines, at most 150", n)
	}
	help, err := exec.Command("make", "-s", "-C", "..", "help").CombinedOutput()
	if err != nil {
		t.Skipf("make: %v %s", err, help)
	}
	for _, include := range regexp.MustCompile(`(?m)^include (.*)$`).FindAllStringSubmatch(string(text), -1) {
		for _, file := range strings.Fields(include[1]) {
			part, err := os.ReadFile(filepath.Join("..", file))
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, part...)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^([\w-]+):.*?## `).FindAllStringSubmatch(string(text), -1) {
		if !regexp.MustCompile(`(?m)^  ` + m[1] + ` `).Match(help) {
			t.Errorf("make help does not list %s", m[1])
		}
	}
}

// Tables and code are as wide as they need.
func TestPagesWrapAt100Columns(t *testing.T) {
	for path, text := range pagesOf(t, "*.md", "docs/*.md", "docs/design/*.md", "docs/recipes/*.md") {
		code := false
		for i, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if line == "<!-- test" || line == "-->" { // commands of a recipe that no reader sees
				code = line != "-->"
			}
			if n := len([]rune(line)); n > 100 && !code && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d has %d columns", path, i+1, n)
			}
		}
	}
}

// The tree of ARCHITECTURE.md has a line for each folder with Go files, or for the one that it is in.
func TestTheTreeHasEveryPackage(t *testing.T) {
	_, rest, _ := strings.Cut(pagesOf(t, "ARCHITECTURE.md")[filepath.Join("..", "ARCHITECTURE.md")], "```\n")
	tree, _, _ := strings.Cut(rest, "```")
	words := strings.FieldsFunc(tree, func(r rune) bool { return strings.ContainsRune(" \n(),;:", r) })
	for i, w := range words {
		words[i] = strings.TrimSuffix(w, "/")
	}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != ".." && (name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if files, _ := filepath.Glob(filepath.Join(path, "*.go")); len(files) == 0 {
			return nil
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(path, ".."), string(filepath.Separator)))
		if rel != "" && !slices.Contains(words, rel) && !slices.Contains(words, filepath.Base(rel)) {
			t.Errorf("ARCHITECTURE.md does not have the folder %s", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
