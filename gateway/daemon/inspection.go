package daemon

import (
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/inspection"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/stack"
)

// openInspection reads the rules of a configuration. Without policies it inspects nothing, until a reload brings some.
func (d *Daemon) openInspection(cfg *config.Config) (err error) {
	d.inspection, err = inspection.Open(cfg, inspection.Options{Wall: stack.Wall, OnVerdict: d.verdict})
	return err
}

// verdict gets each alert, on the goroutine of a loop.
func (d *Daemon) verdict(*inspection.Verdict) {}

func (d *Daemon) writeInspection(w *metrics.Writer) {
	if d.inspection != nil && d.inspection.Enabled() {
		d.inspection.WriteMetrics(w)
	}
}
