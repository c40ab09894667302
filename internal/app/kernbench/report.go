package kernbench

import "github.com/millrace/millrace/gpukern"

// Schema is the version of the layout of Report. Readers refuse others.
const Schema = 1

// Report is a whole run. Its JSON form is stable: fields are added, never renamed.
type Report struct {
	Schema  int       `json:"schema"`
	Version string    `json:"version"` // of the program
	Machine Machine   `json:"machine"`
	Seed    uint64    `json:"seed"`
	Packets int       `json:"packets"` // most of a load
	Seconds float64   `json:"seconds"` // measured for each figure
	Notes   []string  `json:"notes"`   // what is not as asked: no GPU, no captures
	Rows    []Row     `json:"rows"`
	Latency []Latency `json:"latency"`
	Keys    []KeyRow  `json:"keys"` // operations with public and with symmetric keys

	// The engine "auto" goes by such calibrations: see Calibrate. Empty without a GPU.
	Calibrations []gpukern.CalibrationReport `json:"calibrations"`

	Stopped bool `json:"stopped"` // before the end, by a signal
}

// Machine is where the figures were taken.
type Machine struct {
	Date   string `json:"date"` // UTC
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"` // that were used
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Vector string `json:"vector"` // instructions that the CPU engine uses
	GPU    string `json:"gpu"`    // "" where none was used
	GPUBus string `json:"gpu_bus"`
	Driver string `json:"driver"` // of the GPU
}

// Row is an operation with packets of one size.
type Row struct {
	Op        string   `json:"op"`
	Size      string   `json:"size"`
	Packets   int      `json:"packets"`          // different ones
	MeanBytes float64  `json:"mean_bytes"`       // of a packet
	TextBytes float64  `json:"text_mean_bytes"`  // of its payload; rates of literals count these alone
	Matches   int      `json:"matches"`          // of literals, in all packets
	Sampled   int      `json:"reference_sample"` // packets of which the CPU form was compared with the slow reference
	Error     string   `json:"error,omitempty"`  // why there are no figures
	Figures   []Figure `json:"figures"`
}

// Figure is the rate of one path.
type Figure struct {
	Path             string  `json:"path"`
	Batch            int     `json:"batch"`
	PacketsPerSecond float64 `json:"packets_per_second"` // median of the runs
	Best             float64 `json:"best_packets_per_second"`
	BytesPerSecond   float64 `json:"bytes_per_second"`
	Runs             int     `json:"runs"`
	Packets          uint64  `json:"packets"`            // timed
	Verified         uint64  `json:"verified"`           // compared, each one that was timed and those of the warm-up
	Seconds          float64 `json:"seconds"`            // of the timed runs
	ThreadSeconds    float64 `json:"thread_cpu_seconds"` // CPU time of the thread that submits and polls, meanwhile
	NoRoom           uint64  `json:"no_room,omitempty"`  // packets of flows for which the flow table had no slot
	CPUWatts         float64 `json:"cpu_watts,omitempty"`
	GPUWatts         float64 `json:"gpu_watts,omitempty"`
	NotRun           string  `json:"not_run,omitempty"`
	Error            string  `json:"error,omitempty"`
}

// Latency is the time that single batches take from Submit to Poll, microseconds.
type Latency struct {
	Op       string  `json:"op"`
	Size     string  `json:"size"`
	Path     string  `json:"path"`
	Batch    int     `json:"batch"`
	Least    float64 `json:"least_us"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	N        int     `json:"batches"`
	Verified uint64  `json:"verified"`
	NotRun   string  `json:"not_run,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// Figure returns the figure of a path; nil where there is none with a rate.
func (r *Row) Figure(path string) *Figure {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Path == path && f.PacketsPerSecond > 0 {
			return f
		}
	}
	return nil
}

// Ratio returns how many times as fast a path is as another one; 0 where either has no figure.
func (r *Row) Ratio(path, over string) float64 {
	a, b := r.Figure(path), r.Figure(over)
	if a == nil || b == nil {
		return 0
	}
	return a.PacketsPerSecond / b.PacketsPerSecond
}

// Failed returns what went wrong, a line each: wrong results, and engines that failed.
func (r *Report) Failed() []string {
	var failed []string
	add := func(op, size, path, err string) {
		if err != "" {
			failed = append(failed, op+", "+size+path+": "+err)
		}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		add(row.Op, row.Size, "", row.Error)
		for k := range row.Figures {
			add(row.Op, row.Size, ", "+row.Figures[k].Path, row.Figures[k].Error)
		}
	}
	for i := range r.Latency {
		l := &r.Latency[i]
		add(l.Op, l.Size, ", "+l.Path, l.Error)
	}
	for i := range r.Keys {
		row := &r.Keys[i]
		add(row.Op, "public keys", "", row.Error)
		for k := range row.Figures {
			add(row.Op, "public keys", ", "+row.Figures[k].Path, row.Figures[k].Error)
		}
	}
	return failed
}

// Verified returns how many results were compared in all.
func (r *Report) Verified() (n uint64) {
	for i := range r.Rows {
		for k := range r.Rows[i].Figures {
			n += r.Rows[i].Figures[k].Verified
		}
	}
	for i := range r.Latency {
		n += r.Latency[i].Verified
	}
	for i := range r.Keys {
		for k := range r.Keys[i].Figures {
			n += uint64(r.Keys[i].Figures[k].Verified)
		}
	}
	return n
}
