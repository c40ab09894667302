package kernbench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	_ "github.com/millrace/millrace/gpukern/cuda/loader" // of the kernels
	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/internal/testkit/checkout"
)

// The environment of TestMeasureExpressions.
const (
	expressionFile = "MILLRACE_EXPRESSIONS" // patterns, a line each, as `replay --patterns` reads them
	textFile       = "MILLRACE_TEXTS"       // bytes of payloads
	outFolder      = "MILLRACE_OUT"         // where expressions.json goes
)

// expressionFigures are those of one set and one text.
type expressionFigures struct {
	Expressions int     `json:"expressions"`
	Automata    int     `json:"automata"`
	Filtered    int     `json:"filtered"` // of the automata, those that sleep until a literal wakes them
	Threads     int     `json:"threads"`  // of a block of the kernel
	TableBytes  int     `json:"table_bytes"`
	Refused     int     `json:"refused"`
	CompileS    float64 `json:"compile_seconds"`
	Text        string  `json:"text"` // "captures" or "random"
	Bytes       int     `json:"bytes"`
	StreamBytes int     `json:"stream_bytes"`
	Matches     int     `json:"matches"` // the same on cores and GPU, each compared
	OneCore     float64 `json:"one_core_bytes_per_second"`
	AllCores    float64 `json:"all_cores_bytes_per_second"`
	GPU         float64 `json:"gpu_bytes_per_second"` // from host memory and back, with all that a call does
	GPUFill     float64 `json:"gpu_fill_share"`       // of a call's time, in which the host lays texts and states out
	GPUDevice   float64 `json:"gpu_device_share"`     // in which it waits for copies and kernels
	GPUWatts    float64 `json:"gpu_watts"`            // over a second of calls
	GPUEnergy   float64 `json:"gpu_nj_per_byte"`      // of those; 0 where the driver reports no watts
}

// expressionVariant is a way to search.
type expressionVariant struct {
	unfiltered bool
	threads    int
	one        bool // whether a single core is measured, too
}

// The variants of sets of a thousand expressions and more; smaller ones have the first.
var expressionVariants = []expressionVariant{{threads: 256, one: true}, {unfiltered: true, threads: 256, one: true}}

// streamsOf cuts text into pieces of a size, each a stream of its own.
func streamsOf(set *expression.Set, text []byte, size int) (pieces []expression.Piece) {
	for part := range slices.Chunk(text, size) {
		pieces = append(pieces, expression.Piece{Bytes: part, Stream: set.NewStream(), Ends: true})
	}
	return pieces
}

// TestMeasureExpressions measures sets of expressions on a core, on all cores and on the GPU, and compares every match. It is for a
// machine with a GPU: `MILLRACE_EXPRESSIONS=FILE MILLRACE_TEXTS=FILE MILLRACE_OUT=DIR go test -run TestMeasureExpressions -v .`
func TestMeasureExpressions(t *testing.T) {
	if os.Getenv(expressionFile) == "" || os.Getenv(textFile) == "" {
		t.Skipf("%s and %s name no files", expressionFile, textFile)
	}
	lines, err := os.ReadFile(os.Getenv(expressionFile))
	if err != nil {
		t.Fatal(err)
	}
	captures, err := os.ReadFile(os.Getenv(textFile))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cuda.Open(cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	random := make([]byte, 1<<20)
	g := rand.New(rand.NewPCG(1, 1))
	for i := range random {
		random[i] = byte(g.Uint32())
	}
	all := strings.Split(strings.TrimSpace(string(lines)), "\n")
	var rows []expressionFigures
	for _, n := range []int{10, 100, 1000, len(all)} {
		for _, text := range []struct {
			name  string
			bytes []byte
		}{{"captures", captures}, {"random", random}} {
			for _, v := range expressionVariants[:map[bool]int{true: len(expressionVariants), false: 1}[n >= 1000]] {
				f := measureExpressions(t, dev, all[:min(n, len(all))], v, text.name, text.bytes)
				rows = append(rows, f)
				t.Logf("%+v", f)
			}
		}
	}
	info := dev.Info()
	raw, err := json.MarshalIndent(map[string]any{
		"gpu": info.Name, "driver": info.Driver, "cores": runtime.GOMAXPROCS(0), "cpu": cpuName(), "date": time.Now().UTC().Format(time.RFC3339), "rows": rows,
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(outFolder), "expressions.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// cpuName returns what /proc/cpuinfo calls the processor.
func cpuName() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(raw), "model name")
	name, _, _ := strings.Cut(strings.TrimLeft(rest, "\t :"), "\n")
	return name
}

// expressionSet compiles lines.
func expressionSet(t *testing.T, lines []string, unfiltered bool) *expression.Set {
	t.Helper()
	key := fmt.Sprint(len(lines), unfiltered)
	if expressionSets[key] == nil {
		expressionSets[key] = compileExpressions(t, lines, unfiltered)
	}
	return expressionSets[key]
}

// expressionSets are the sets compiled so far, by how many lines they have.
var expressionSets = map[string]*expression.Set{}

func compileExpressions(t *testing.T, lines []string, unfiltered bool) *expression.Set {
	t.Helper()
	p, err := filter.ParsePatterns("p", strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !unfiltered {
		return p.Expressions()
	}
	set, err := expression.CompileUnfiltered(p.Programs())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func measureExpressions(t *testing.T, dev *cuda.Device, lines []string, v expressionVariant, name string, sample []byte) expressionFigures {
	t.Helper()
	const size = 16 << 10
	began := time.Now()
	set := expressionSet(t, lines, v.unfiltered)
	f := expressionFigures{
		Expressions: set.Len(), Automata: set.Groups(), Filtered: set.Filtered(), Threads: v.threads, TableBytes: set.Size(), Refused: len(set.Refused()), CompileS: time.Since(began).Seconds(),
		Text: name, StreamBytes: size,
	}
	text := slices.Concat(slices.Repeat([][]byte{sample}, 1+(32<<20)/len(sample))...)[:32<<20]
	f.Bytes = len(text)

	if v.one {
		one := streamsOf(set, text[:max(size, min(len(text), 128<<20/max(1, set.Groups())))], size)
		began = time.Now()
		set.ScanPieces(one, nil)
		f.OneCore = float64(len(one)*size) / time.Since(began).Seconds()
	}

	cores, err := choose.NewOpener(choose.OpenConfig{Kind: choose.KindCPU})
	if err != nil {
		t.Fatal(err)
	}
	search, err := cores.OpenExpressions(set)
	if err != nil {
		t.Fatal(err)
	}
	want := streamsOf(set, text, size)
	began = time.Now()
	hits := search.ScanPieces(want, nil)
	f.AllCores, f.Matches = float64(len(text))/time.Since(began).Seconds(), len(hits)

	e, err := dev.NewExpressions(set, cuda.ExpressionsConfig{Bytes: 32 << 20, Streams: 4096, Hits: 1 << 20, Threads: v.threads})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var rates []float64
	var first cuda.ExpressionTiming
	var all float64
	for i := range 4 { // the first is not counted
		got := streamsOf(set, text, size)
		began = time.Now()
		found := e.ScanPieces(got, nil)
		took := time.Since(began).Seconds()
		rates = append(rates, float64(len(text))/took)
		if all += took; i == 0 {
			all, first = 0, e.Timing()
		}
		if e.Lost() != nil || !slices.Equal(found, hits) {
			t.Fatalf("%d matches on the GPU, %d on cores, lost: %v", len(found), len(hits), e.Lost())
		}
		for i := range got {
			if !slices.Equal(got[i].Stream.Rows, want[i].Stream.Rows) {
				t.Fatalf("stream %d: the states differ", i)
			}
		}
	}
	spent := e.Timing()
	f.GPUFill, f.GPUDevice = (spent.Fill-first.Fill).Seconds()/all, (spent.Device-first.Device).Seconds()/all
	slices.Sort(rates[1:])
	f.GPU = rates[2]
	f.GPUWatts, f.GPUEnergy = expressionEnergy(dev, e, text, size, set)
	return f
}

// expressionEnergy makes calls for a second, and returns the watts of the GPU and its energy for a byte in nanojoules. The time in
// which the host makes streams is part of it.
func expressionEnergy(dev *cuda.Device, e *cuda.Expressions, text []byte, size int, set *expression.Set) (watts, each float64) {
	meter, began, calls := dev.StartMeter(), time.Now(), 0
	for ; time.Since(began) < time.Second; calls++ {
		e.ScanPieces(streamsOf(set, text, size), nil)
	}
	took := time.Since(began).Seconds()
	watts, _ = meter.Watts()
	return watts, watts * took / float64(calls*len(text)) * 1e9
}

// TestThePageHasTheFiguresOfExpressions compares the table of docs/gpu.md with bench/results/regex-h200.json.
func TestThePageHasTheFiguresOfExpressions(t *testing.T) {
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "bench/results/regex-h200.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/gpu.md"))
	if err != nil {
		t.Fatal(err)
	}
	var stored struct{ Rows []expressionFigures }
	if err := json.Unmarshal(raw, &stored); err != nil || len(stored.Rows) < 8 {
		t.Fatalf("%d rows, %v", len(stored.Rows), err)
	}
	for _, f := range stored.Rows {
		row := fmt.Sprintf("| %d | %d | %d | %s | %d | %s | %s | %s | %s | %s | %s |\n", f.Expressions, f.Automata, f.Filtered, f.Text, f.Matches,
			megabytes(f.OneCore), megabytes(f.AllCores), megabytes(f.GPU), ratio(f.GPU/f.OneCore), ratio(f.GPU/f.AllCores), number(f.GPUEnergy))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/gpu.md has no row %s", row)
		}
	}
}

func megabytes(rate float64) string {
	if rate < 100e6 {
		return fmt.Sprintf("%.1f", rate/1e6)
	}
	return fmt.Sprintf("%.0f", rate/1e6)
}

// readResults reads a file of bench/results.
func readResults(t *testing.T, name string, to any) {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "bench/results", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}
