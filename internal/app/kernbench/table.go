package kernbench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Column returns a path as tables and charts head it.
func Column(path string) string { return columns[path] }

// columns are the paths as the table heads them.
var columns = map[string]string{
	PathOne: "one core", PathAll: "all cores", PathRing: "GPU ring", PathHost: "GPU from host memory", PathResident: "GPU memory",
}

// WriteText writes the report as a table for people.
func (r *Report) WriteText(w io.Writer) {
	t := &table{head: []string{"operation", "packets", "bytes"}}
	for _, p := range r.paths() {
		t.head = append(t.head, columns[p]+", Mpps", "GB/s")
	}
	gpu := r.hasGPU()
	if gpu {
		t.head = append(t.head, "GPU/one", "GPU/all", "faster")
	}
	t.head = append(t.head, "verified")
	for i := range r.Rows {
		t.rows = append(t.rows, r.cells(&r.Rows[i], gpu))
	}
	if len(t.rows) > 0 {
		t.write(w)
	}
	r.writeLatency(w)
	r.writeKeys(w)
	for i := range r.Calibrations {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, "auto: "+r.Calibrations[i].Text)
	}
}

// paths returns those that have a figure.
func (r *Report) paths() []string {
	var with []string
	for _, p := range Paths() {
		for i := range r.Rows {
			if r.Rows[i].Figure(p) != nil {
				with = append(with, p)
				break
			}
		}
	}
	return with
}

// hasGPU reports whether there is a figure of the GPU.
func (r *Report) hasGPU() bool {
	for _, p := range r.paths() {
		if p != PathOne && p != PathAll {
			return true
		}
	}
	return false
}

// fromHost returns the GPU's faster path from host memory; "" where it has none.
func (r *Row) fromHost() string {
	best, rate := "", 0.0
	for _, p := range []string{PathRing, PathHost} {
		if f := r.Figure(p); f != nil && f.PacketsPerSecond > rate {
			best, rate = p, f.PacketsPerSecond
		}
	}
	return best
}

// Faster returns who is faster end to end, "cpu" with all of its cores or "cuda" from host memory; ""
// where one of them has no figure.
func (r *Row) Faster() string {
	all := r.allCores()
	ratio := r.Ratio(r.fromHost(), all)
	switch {
	case ratio == 0:
		return ""
	case ratio > 1:
		return "cuda"
	}
	return "cpu"
}

// allCores returns the path of all cores; that of one where there is one.
func (r *Row) allCores() string {
	if r.Figure(PathAll) == nil {
		return PathOne
	}
	return PathAll
}

func (r *Report) cells(row *Row, gpu bool) []string {
	c := []string{row.Op, row.Size, strconv.FormatFloat(row.MeanBytes, 'f', 0, 64)}
	if row.Error != "" {
		return append(c, row.Error)
	}
	var verified uint64
	for _, p := range r.paths() {
		if f := row.Figure(p); f != nil {
			c = append(c, number(f.PacketsPerSecond/1e6), number(f.BytesPerSecond/1e9))
		} else {
			c = append(c, "-", "-")
		}
	}
	for i := range row.Figures {
		verified += row.Figures[i].Verified
	}
	if gpu {
		host := row.fromHost()
		c = append(c, ratio(row.Ratio(host, PathOne)), ratio(row.Ratio(host, row.allCores())), row.Faster())
	}
	return append(c, strconv.FormatUint(verified, 10))
}

func ratio(x float64) string {
	if x == 0 {
		return "-"
	}
	return number(x) + "x"
}

// number writes three digits.
func number(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// writeLatency writes a table of single batches.
func (r *Report) writeLatency(w io.Writer) {
	t := &table{head: []string{"batch of", "operation", "path", "least us", "p50 us", "p99 us", "batches", "verified"}}
	for i := range r.Latency {
		l := &r.Latency[i]
		if l.N == 0 {
			continue
		}
		t.rows = append(t.rows, []string{
			strconv.Itoa(l.Batch), l.Op + ", " + l.Size, columns[l.Path], number(l.Least), number(l.P50), number(l.P99),
			strconv.Itoa(l.N), strconv.FormatUint(l.Verified, 10),
		})
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
		t.write(w)
	}
}

// writeKeys writes a table of public-key operations.
func (r *Report) writeKeys(w io.Writer) {
	t := &table{head: []string{"with keys", "faster", "one core, k/s", "all cores, k/s"}}
	gpu := r.Machine.GPU != ""
	if gpu {
		t.head = append(t.head, "GPU, k/s", "GPU/one", "GPU/all", "a call of 64, ms", "GPU from, one core", "all cores")
	}
	t.head = append(t.head, "verified")
	for i := range r.Keys {
		row := &r.Keys[i]
		if row.Error != "" {
			t.rows = append(t.rows, []string{row.Op, row.Error})
			continue
		}
		c, verified := []string{row.Op, row.Faster()}, 0
		for _, p := range []string{PathOne, PathAll, PathHost} {
			f := row.Figure(p)
			switch {
			case f != nil:
				c, verified = append(c, number(f.PerSecond/1e3)), verified+f.Verified
			case p != PathHost || gpu:
				c = append(c, "-")
			}
		}
		if gpu {
			c = append(c, ratio(row.Ratio(PathHost, PathOne)), ratio(row.Ratio(PathHost, row.allCores())), row.callOf(64), fewest(row.FromOne), fewest(row.FromAll))
		}
		t.rows = append(t.rows, append(c, strconv.Itoa(verified)))
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(w)
		t.write(w)
	}
}

// Faster returns who makes more operations a second, "cpu" with all of its cores or "cuda"; "" where one of them has no figure.
func (r *KeyRow) Faster() string {
	switch x := r.Ratio(PathHost, r.allCores()); {
	case x == 0:
		return ""
	case x > 1:
		return "cuda"
	}
	return "cpu"
}

// callOf returns the time of a call of n operations, milliseconds.
func (r *KeyRow) callOf(n int) string {
	for _, c := range r.Calls {
		if c.Operations == n {
			return number(c.Milliseconds)
		}
	}
	return "-"
}

// fewest returns from how many operations on the GPU is faster.
func fewest(n int) string {
	if n == 0 {
		return "never"
	}
	return strconv.Itoa(n)
}

// table is text in columns: the first two to the left, numbers to the right.
type table struct {
	head []string
	rows [][]string
}

func (t *table) write(w io.Writer) {
	wide := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			if len(row) == len(t.head) { // a message may be longer
				wide[i] = max(wide[i], len(c))
			}
		}
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, c := range row {
			if i < 2 {
				fmt.Fprintf(&line, "%-*s  ", wide[i], c)
			} else {
				fmt.Fprintf(&line, "%*s  ", wide[i], c)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}
