package kernbench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
)

// pageSizes are the sizes that stand in the page: the others lie between them.
var pageSizes = []string{Size64, Size1408, SizeCapture, SizeHostile}

// WritePage writes the report as the tables of docs/gpu.md.
func (r *Report) WritePage(w io.Writer) {
	m := &r.Machine
	fmt.Fprintf(w, "%s, driver %s, beside %d cores of %s;\nLinux %s, commit %s, %s. %d results were compared.\n\n",
		m.GPU, m.Driver, m.Cores, m.CPU, m.Kernel, r.Version, m.Date[:min(10, len(m.Date))], r.Verified())
	fmt.Fprintln(w, "**Packets**, millions a second; *from* is the batch from which on a single one takes the GPU less\ntime than a core.")
	fmt.Fprintln(w)
	t := markdown{w}
	t.head("operation", "packets", "one core", "all cores", "GPU, host memory", "GPU memory", "GPU/one", "GPU/all", "from", "GPU, nJ a packet")
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Error == "" && slices.Contains(pageSizes, row.Size) && measured(row.Op) {
			t.row(r.pageCells(row)...)
		}
	}
	fmt.Fprintln(w, "\n**Public keys**, thousands of operations a second; *from* is the smallest call measured from which\non the GPU is faster.")
	fmt.Fprintln(w)
	t.head("operation", "one core", "all cores", "GPU", "GPU/one", "GPU/all", "a call of 64, ms", "from, one core", "from, all cores", "GPU, uJ each")
	r.keyRows(t, keyCatalogue, (*KeyRow).pageCells)
	fmt.Fprintf(w, "\n**Symmetric keys**, GB/s of texts of %d bytes in memory that the GPU does not map: cores copy them\nthere and back. Rates, and so GPU/one, are of larger calls than *from* compares, which have up to\n16384 texts: *never* means that none of those was faster.\n\n", textSize)
	t.head("operation", "one core", "all cores", "GPU", "GPU/one", "GPU/all", "from, one core", "from, all cores", "GPU, nJ a byte")
	r.keyRows(t, textCatalogue, (*KeyRow).textCells)
	fmt.Fprintln(w, "\n**The engine `auto`** on that machine, packets of a batch from which on it takes the GPU:")
	fmt.Fprintln(w)
	t.head("operations", "bytes", "others in flight", "a single batch")
	for _, c := range r.Calibrations {
		t.row(c.Ops, strconv.Itoa(c.Bytes), fewest(c.BreakEven), fewest(c.BreakEvenAlone))
	}
}

// measured reports whether an operation is one of the catalogue: reports that are stored may have others, which are gone.
func measured(op string) bool {
	return slices.ContainsFunc(catalogue, func(o Op) bool { return o.Name == op })
}

func (r *Report) pageCells(row *Row) []string {
	host := row.fromHost()
	rate := func(path string) string {
		if f := row.Figure(path); f != nil {
			return number(f.PacketsPerSecond / 1e6)
		}
		return "-"
	}
	energy := "-"
	if f := row.Figure(host); f != nil && f.GPUWatts > 0 {
		energy = number(f.GPUWatts / f.PacketsPerSecond * 1e9)
	}
	return []string{
		row.Op, row.Size, rate(PathOne), rate(PathAll), rate(host), rate(PathResident),
		ratio(row.Ratio(host, PathOne)), ratio(row.Ratio(host, row.allCores())), r.fromBatch(row), energy,
	}
}

// fromBatch returns the smallest batch that was timed from which on a single one takes the GPU less time than a core; "-" where
// none was.
func (r *Report) fromBatch(row *Row) string {
	core, gpu := map[int]float64{}, map[int]float64{}
	for _, l := range r.Latency {
		switch {
		case l.Op != row.Op || l.Size != row.Size || l.N == 0:
		case l.Path == PathOne:
			core[l.Batch] = l.P50
		case gpu[l.Batch] == 0 || l.P50 < gpu[l.Batch]:
			gpu[l.Batch] = l.P50
		}
	}
	maps.DeleteFunc(core, func(n int, _ float64) bool { return gpu[n] == 0 })
	if len(core) == 0 {
		return "-"
	}
	return fewest(fromOn(core, func(n int) bool { return gpu[n] < core[n] }))
}

// keyRows writes the rows of the operations of a catalogue.
func (r *Report) keyRows(t markdown, catalogue []KeyOp, cells func(*KeyRow) []string) {
	for i := range r.Keys {
		if row := &r.Keys[i]; row.Error == "" && slices.ContainsFunc(catalogue, func(o KeyOp) bool { return o.Name == row.Op }) {
			t.row(cells(row)...)
		}
	}
}

func (r *KeyRow) pageCells() []string {
	return slices.Concat(r.rates(1e-3), []string{r.callOf(64), fewest(r.FromOne), fewest(r.FromAll), r.energy(1e6)})
}

func (r *KeyRow) textCells() []string {
	return slices.Concat(r.rates(textSize/1e9), []string{fewest(r.FromOne), fewest(r.FromAll), r.energy(1e9 / textSize)})
}

// rates returns the name of an operation, its rates in units of so many operations, and what the GPU gains.
func (r *KeyRow) rates(unit float64) []string {
	rate := func(path string) string {
		if f := r.Figure(path); f != nil {
			return number(f.PerSecond * unit)
		}
		return "-"
	}
	return []string{r.Op, rate(PathOne), rate(PathAll), rate(PathHost), ratio(r.Ratio(PathHost, PathOne)), ratio(r.Ratio(PathHost, r.allCores()))}
}

// energy returns the GPU's energy for an operation, in joules times unit.
func (r *KeyRow) energy(unit float64) string {
	if f := r.Figure(PathHost); f != nil && f.GPUWatts > 0 {
		return number(f.GPUWatts / f.PerSecond * unit)
	}
	return "-"
}

// markdown writes tables: the first column to the left, the others to the right.
type markdown struct{ w io.Writer }

func (m markdown) head(cells ...string) {
	m.row(cells...)
	fmt.Fprint(m.w, "|---|")
	for range cells[1:] {
		fmt.Fprint(m.w, "---:|")
	}
	fmt.Fprintln(m.w)
}

func (m markdown) row(cells ...string) {
	fmt.Fprint(m.w, "|")
	for _, c := range cells {
		fmt.Fprint(m.w, " ", c, " |")
	}
	fmt.Fprintln(m.w)
}
