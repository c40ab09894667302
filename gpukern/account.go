package gpukern

// Account is what engines of one kind have done, and what is known of their back ends: Info for reports and
// other programs. Its JSON form is stable: fields are added, never renamed.
type Account struct {
	Name     string    `json:"name"` // "cpu", "cuda", "auto"
	Device   string    `json:"device"`
	Ops      string    `json:"ops"`
	Backends []Done    `json:"backends"`
	Redone   uint64    `json:"redone_packets"` // were in a GPU that was lost, and were done again on the CPU
	Fault    string    `json:"fault"`          // why a GPU was given up; "" where none was
	Verdicts []Verdict `json:"verdicts"`       // none where nothing was measured

	engines int
}

// Done is what a back end has done, in all engines.
type Done struct {
	Name    string  `json:"name"` // "cpu", "cuda"
	Packets uint64  `json:"packets"`
	Batches uint64  `json:"batches"`
	Share   float64 `json:"share"` // of the batches that either could do, now, 0 to 1; the mean of the engines

	engines int
}

// Verdict is a Choice for reports.
type Verdict struct {
	Ops       string  `json:"ops"`
	Bytes     int     `json:"bytes"`      // size of the packets that were measured
	From      int     `json:"from"`       // packets from which on the GPU saves the loop time; 0 is never
	FromAlone int     `json:"from_alone"` // the same for a lone batch; 0 is never
	CPU       Figures `json:"cpu"`
	GPU       Figures `json:"gpu"`
	Text      string  `json:"text"` // all of it, for people
}

// Figures are a Line for reports: a lone batch of n packets takes Batch + n*Packet nanoseconds, and a packet
// takes Each with several batches under way.
type Figures struct {
	Batch  float64 `json:"batch_ns"`
	Packet float64 `json:"packet_ns"`
	Each   float64 `json:"each_ns"`
}

// Add adds an engine. All have the same operations, and the same verdicts, where they have any; the first fault
// stays.
func (a *Account) Add(i Info) {
	if a.engines++; a.engines == 1 {
		a.Ops, a.Backends = i.Ops.String(), []Done{}
	}
	if len(a.Verdicts) == 0 {
		a.Name, a.Device, a.Verdicts = i.Name, i.Device, Verdicts(i.Choices)
	}
	if a.Fault == "" {
		a.Fault = i.Fault
	}
	a.Redone += i.Redone
	for _, w := range i.Work {
		a.backend(w.Name).add(w)
	}
}

// backend returns the account of a back end, a new one where it has none.
func (a *Account) backend(name string) *Done {
	for i := range a.Backends {
		if a.Backends[i].Name == name {
			return &a.Backends[i]
		}
	}
	a.Backends = append(a.Backends, Done{Name: name})
	return &a.Backends[len(a.Backends)-1]
}

// add adds the work of an engine.
func (d *Done) add(w Work) {
	d.engines++
	d.Packets += w.Packets
	d.Batches += w.Batches
	d.Share += (w.Share - d.Share) / float64(d.engines)
}

// Verdicts are choices for reports.
func Verdicts(choices []Choice) []Verdict {
	all := make([]Verdict, 0, len(choices))
	for i := range choices {
		c := &choices[i]
		all = append(all, Verdict{
			Ops: c.Ops.String(), Bytes: c.Bytes, From: c.From, FromAlone: c.FromAlone, Text: c.String(),
			CPU: Figures{c.CPU.T0, c.CPU.T1, c.CPU.Each}, GPU: Figures{c.GPU.T0, c.GPU.T1, c.GPU.Each},
		})
	}
	return all
}
