package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPublicFiles converts the files of a folder, of MILLRACE_CONVERT, and logs the table of docs/moving-in.md: a row for each file, or
// for each folder of more than twelve. What the gateway's reader refuses of the output is a fault of the converter, and fails.
func TestPublicFiles(t *testing.T) {
	dir := os.Getenv("MILLRACE_CONVERT")
	if dir == "" {
		t.Skip("MILLRACE_CONVERT names no folder of configurations (make interop-convert FILES=FOLDER)")
	}
	rows, files := map[string]*publicRow{}, map[string]int{}
	each := func(f func(path string)) {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				f(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	each(func(path string) { files[filepath.Dir(path)]++ })
	each(func(path string) {
		name := path
		if files[filepath.Dir(path)] > mostRows {
			name = filepath.Dir(path)
		}
		name, err := filepath.Rel(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		if rows[name] == nil {
			rows[name] = &publicRow{}
		}
		rows[name].add(t, path)
	})
	var table strings.Builder
	fmt.Fprintln(&table, "| file | converted | translated | differ | left out | of these closed | not needed | left out most |\n|---|---|---|---|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&table, "| `%s` | %s |\n", name, rows[name])
	}
	t.Log("\n" + table.String())
}

// mostRows is how many files of a folder have rows of their own.
const mostRows = 12

// publicRow sums up files.
type publicRow struct {
	files, converted                            int
	translated, changed, left, closed, unneeded int
	names                                       map[string]int // directives that are left out, by their names
	failed                                      string
}

func (r *publicRow) add(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	source := string(text)
	input, rest, found := strings.Cut(source, "\n----------\n") // of Caddy's tests, which have the result behind it
	language := Language("")
	if found && strings.Contains(filepath.Base(path), "caddyfiletest") && strings.HasPrefix(strings.TrimSpace(rest), "{") {
		source, language = input, Caddy
	}
	r.files++
	if language == "" {
		language = detect(path, source)
	}
	rep, err := Text(path, plain(source, language), language)
	if bad := new(OutputError); errors.As(err, &bad) {
		t.Errorf("%s: %v", path, err)
	}
	if err != nil {
		t.Logf("%s: not converted: %.300s", path, err)
		return
	}
	r.converted++
	r.translated, r.changed, r.left = r.translated+rep.Translated, r.changed+rep.Changed, r.left+rep.Left
	r.closed, r.unneeded = r.closed+rep.Closed, r.unneeded+rep.Unneeded
	for _, l := range rep.Lines {
		if l.Result == Left {
			if r.names == nil {
				r.names = map[string]int{}
			}
			name, _, _ := strings.Cut(l.Directive, " ")
			name = cmp.Or(name, `""`) // an entry of a map
			if l.Closed {
				name += " (closed)"
			}
			r.names[name]++
		}
	}
}

var (
	templateLine = regexp.MustCompile(`(?m)^[ \t]*(?:\{\{[^}]*\}\}[ \t]*)+\n`)
	template     = regexp.MustCompile(`\{\{[^}]*\}\}`)
	ownServer    = regexp.MustCompile(`(?m)^[ \t]*(?:server|http|stream|events)[ \t]*\{`)
)

// plain takes the actions of Go's templates off a file, of which both branches stay, and puts the lines of a file of nginx without a
// server into one.
func plain(source string, language Language) string {
	source = template.ReplaceAllString(templateLine.ReplaceAllString(source, ""), "example")
	if language == Nginx && !ownServer.MatchString(source) {
		source = "server { listen 80;\n" + source + "\n}\n"
	}
	return source
}

func (r *publicRow) String() string {
	names := slices.Collect(maps.Keys(r.names))
	slices.SortFunc(names, func(a, b string) int {
		if n := r.names[b] - r.names[a]; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = "`" + name + "`"
	}
	return fmt.Sprintf("%d of %d | %d | %d | %d | %d | %d | %s", r.converted, r.files, r.translated, r.changed, r.left, r.closed, r.unneeded, strings.Join(names[:min(len(names), 4)], ", "))
}
