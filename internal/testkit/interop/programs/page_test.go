package programs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// program is a row of the page: what runs on each tier.
type program struct {
	name    string   // of the row, which PROGRAM selects
	version []string // a command whose first line has the version
	what    string   // what runs, and what is compared
	run     func(t *testing.T, b *bed) (note string)
}

// cell is what came of a program on a tier.
type cell struct {
	Verdict string   `json:"verdict"`
	Note    string   `json:"note,omitempty"`   // figures, or why it did not run
	Failed  []string `json:"failed,omitempty"` // tests of a suite
	Seconds float64  `json:"seconds"`
	Run     string   `json:"run,omitempty"` // the day
}

// row is a program's cells by tier, as the results file has them.
type row struct {
	Program string        `json:"program"`
	Version string        `json:"version"`
	Cells   map[tier]cell `json:"cells"`
}

const (
	resultsFile = "testdata/results.json"
	pageFile    = "../../../../docs/shim-programs.md"

	passed = "pass"
	failed = "FAIL"
	notRun = "not run"
)

// programs are the rows, in the order of the page.
func programs() []program {
	return slices.Concat(transferPrograms(), webPrograms(), dnsPrograms(), storePrograms(), loginPrograms(), languagePrograms(), seccompPrograms(), natsPrograms(), pythonPrograms(), redisPrograms(), nodePrograms(), foreignPrograms())
}

// TestPrograms runs the programs on all tiers, or those that PROGRAM and TIER select. MILLRACE_PROGRAMS is the millrace binary.
func TestPrograms(t *testing.T) {
	if os.Getenv("MILLRACE_PROGRAMS") == "" {
		t.Skip("without MILLRACE_PROGRAMS: make interop-shim runs it")
	}
	rows := map[string]*row{}
	t.Cleanup(func() { writePage(t, rows) })
	for _, on := range tiers {
		if only := os.Getenv("TIER"); only != "" && only != string(on) {
			continue
		}
		t.Run(strings.ReplaceAll(string(on), " ", ""), func(t *testing.T) {
			var b *bed
			for _, p := range programs() {
				if !selected(p.name, os.Getenv("PROGRAM")) {
					continue
				}
				if v := folders[p.name]; v != "" && os.Getenv(v) == "" {
					t.Logf("%s is not run: %s is not set", p.name, v)
					continue
				}
				if b == nil {
					b = newBed(t, on)
				}
				b.rows, b.failed, b.skipped = merged(t, rows), nil, ""
				runRow(t, b, p, rows)
			}
		})
	}
}

// selected reports whether PROGRAM selects a row: the one with that name, or all whose names begin with that word.
func selected(name, only string) bool {
	if slices.ContainsFunc(programs(), func(p program) bool { return p.name == only }) {
		return name == only
	}
	return only == "" || strings.HasPrefix(name, only+" ")
}

// runRow runs a program and records what came of it.
func runRow(t *testing.T, b *bed, p program, rows map[string]*row) {
	c := cell{Verdict: notRun}
	start := time.Now()
	version := ""
	t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
		defer func() {
			if t.Failed() {
				c.Verdict = failed
			} else if !t.Skipped() {
				c.Verdict = passed
			}
		}()
		needs(t, p.version[0])
		version = versionOf(p.version)
		t.Logf("%s: %s", p.name, version)
		c.Note = p.run(t, b)
		t.Log(c.Note)
	})
	if !t.Run(strings.ReplaceAll(p.name, " ", "_")+"_leaves_no_socket", func(t *testing.T) { b.settled(t) }) && c.Verdict == passed {
		c.Verdict = failed
	}
	if c.Verdict == notRun {
		c.Note = b.skipped
	}
	c.Failed = b.failed
	c.Seconds = time.Since(start).Round(100 * time.Millisecond).Seconds()
	c.Run = time.Now().Format(time.DateOnly)
	if rows[p.name] == nil {
		rows[p.name] = &row{Program: p.name, Cells: map[tier]cell{}}
	}
	rows[p.name].Cells[b.tier] = c
	if version != "" {
		rows[p.name].Version = version
	}
}

// number is a version number of two or more parts.
var number = regexp.MustCompile(`\d+(\.\d+)+[a-z0-9]*`)

// versionOf returns the first version number that a command prints.
func versionOf(command []string) string {
	out, _ := exec.Command(command[0], command[1:]...).CombinedOutput()
	return number.FindString(string(out))
}

// readRows returns the rows of earlier runs.
func readRows(t *testing.T) map[string]*row {
	t.Helper()
	text, err := os.ReadFile(resultsFile)
	must(t, err)
	var list []*row
	must(t, json.Unmarshal(text, &list))
	rows := map[string]*row{}
	for _, r := range list {
		rows[r.Program] = r
	}
	return rows
}

// merged returns the rows of earlier runs with those of this one in their place.
func merged(t *testing.T, mine map[string]*row) map[string]*row {
	t.Helper()
	rows := readRows(t)
	for name, r := range mine {
		if rows[name] == nil {
			rows[name] = &row{Program: name, Cells: map[tier]cell{}}
		}
		rows[name].Version = cmp.Or(r.Version, rows[name].Version)
		maps.Copy(rows[name].Cells, r.Cells)
	}
	return rows
}

// writePage writes the results file and the table of the page. Runs of several tiers at once take turns.
func writePage(t *testing.T, mine map[string]*row) {
	lock, err := os.Open(resultsFile)
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	rows := merged(t, mine)
	var list []*row
	for _, p := range programs() {
		if r := rows[p.name]; r != nil {
			list = append(list, r)
		}
	}
	text, err := json.MarshalIndent(list, "", " ")
	must(t, err, os.WriteFile(resultsFile, append(text, '\n'), 0o644))
	before, _, after := page(t)
	must(t, os.WriteFile(pageFile, []byte(before+table(rows)+after), 0o644))
}

// The table lies between these lines of the page.
const (
	tableBegin = "<!-- made by make interop-shim -->\n"
	tableEnd   = "<!-- end -->\n"
)

// page returns what is before, in and behind the table; the lines around it are part of before and after.
func page(t *testing.T) (before, middle, after string) {
	t.Helper()
	text, err := os.ReadFile(pageFile)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), tableBegin)
	middle, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s: the lines around the table are missing", pageFile)
	}
	return before + tableBegin, middle, tableEnd + after
}

// table returns the table of the page.
func table(rows map[string]*row) string {
	var b strings.Builder
	head := []string{"program", "what ran"}
	for _, on := range tiers {
		head = append(head, string(on))
	}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, p := range programs() {
		r := rows[p.name]
		if r == nil {
			r = &row{}
		}
		fmt.Fprintf(&b, "| %s | %s |", strings.TrimSpace(p.name+" "+r.Version), p.what)
		for _, on := range tiers {
			fmt.Fprintf(&b, " %s |", r.Cells[on])
		}
		b.WriteByte('\n')
	}
	b.WriteString(runTable(rows))
	b.WriteString(exceptionTable())
	return b.String()
}

// runTable is the table of when each cell was made, the last day first.
func runTable(rows map[string]*row) string {
	cells := map[string][]string{}
	for _, p := range programs() {
		on := map[string][]string{}
		for _, tier := range tiers {
			if r := rows[p.name]; r != nil && r.Cells[tier].Verdict != "" {
				run := cmp.Or(r.Cells[tier].Run, "2026-11 or earlier")
				on[run] = append(on[run], string(tier))
			}
		}
		for run, list := range on {
			cells[run] = append(cells[run], fmt.Sprintf("%s (%s)", p.name, strings.Join(list, ", ")))
		}
	}
	var b strings.Builder
	b.WriteString("\n| last run | cells |\n|---|---|\n")
	for _, run := range slices.Backward(slices.Sorted(maps.Keys(cells))) {
		fmt.Fprintf(&b, "| %s | %s |\n", run, strings.Join(cells[run], ", "))
	}
	return b.String()
}

func (c cell) String() string {
	switch {
	case c.Verdict == "":
		return notRun
	case c.Verdict == notRun && c.Note != "":
		return "not possible: " + c.Note
	case c.Note != "":
		return c.Verdict + ": " + c.Note
	}
	return c.Verdict
}

// TestPage compares the page with the code and the results, none of which may be a failure on the stack.
func TestPage(t *testing.T) {
	rows := readRows(t)
	if _, have, _ := page(t); have != table(rows) {
		t.Errorf("%s is not what %s and the code make it: run make interop-shim PROGRAM=...", pageFile, resultsFile)
	}
	for _, p := range programs() {
		for _, on := range tiers {
			if r := rows[p.name]; r != nil && r.Cells[on].Verdict == failed && on != onKernel && !excused(p.name, on) {
				t.Errorf("%s on %s failed", p.name, on)
			}
		}
	}
}
