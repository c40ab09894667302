package kernbench

import "fmt"

// trial is an operation over packets of one size: what a row of the report is about.
type trial struct {
	op      *Op
	size    string
	tables  *tables
	load    *load
	traffic *traffic // nil where the packets come from captures
	want    *expectation
}

// prepare fills the load and finds out what every run must give.
func prepare(o *Op, size string, t *tables, l *load, cfg *Config) (*trial, error) {
	c := &trial{op: o, size: size, tables: t, load: l}
	if size == SizeCapture {
		if err := l.captured(cfg.Captures, cfg.Packets); err != nil {
			return nil, err
		}
	} else {
		c.traffic = &traffic{t.seed, t.lists}
		l.made(o, size, cfg.Packets, c.traffic, payload(t.seed, size, t.lists.Literals))
	}
	if len(l.desc) == 0 {
		return nil, fmt.Errorf("no packets of size %s", size)
	}
	var err error
	c.want, err = expect(l, o, t)
	return c, err
}

// fill runs every flow of the operation through a path once, where there are more of them than packets, so
// that its flow table is as full as it says. The packets of the load are made again afterwards.
func (c *trial) fill(r runner, w *work) error {
	l := c.load
	if c.op.flows <= len(l.desc) || c.traffic == nil {
		return nil
	}
	length, text := lengths(c.size)[0], l.text
	for at := 0; at < c.op.flows; {
		l.begin()
		for at < c.op.flows && len(l.desc) < len(c.want.before) {
			p := l.add(length)
			if p == nil {
				break
			}
			c.traffic.flow(at).write(p)
			at++
		}
		if _, err := r.run(w.part(l.desc)); err != nil {
			return err
		}
	}
	l.made(c.op, c.size, len(c.want.before), c.traffic, payload(c.tables.seed, c.size, nil))
	l.text = text
	return nil
}
