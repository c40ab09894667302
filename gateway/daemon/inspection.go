package daemon

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/inspection"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/stack"
)

// engineCPU and engineCUDA are kinds of engines.
const (
	engineCPU  = "cpu"
	engineCUDA = "cuda"
)

// openInspection reads the rules of a configuration. Without policies it inspects nothing, until a reload brings some.
func (d *Daemon) openInspection(cfg *config.Config) (err error) {
	if d.inspection, err = inspection.Open(cfg, inspection.Options{Wall: stack.Wall, OnVerdict: d.verdict, Literals: d.searchesOnGPU(cfg)}); err != nil {
		return err
	}
	d.logFits()
	return nil
}

// inspectors returns what inspects the requests of each worker of listeners.
func (d *Daemon) inspectors(workers int) (list []proxy.Inspector) {
	d.inspection.SetWorkers(workers)
	for n := range workers {
		list = append(list, d.inspection.Requests(n).Engine)
	}
	return list
}

// logFits logs how many rules of the policies for listeners apply to requests, and which do not.
func (d *Daemon) logFits() {
	for _, f := range d.inspection.Fits() {
		d.opt.Log.Info("inspection", "policy", f.Policy, "rules", f.String())
	}
}

// engine returns the kind of engine, of the command line or of the configuration.
func (d *Daemon) engine(cfg *config.Config) string {
	return cmp.Or(d.opt.Engine, cfg.Engine, engineCPU)
}

// searchesOnGPU reports whether a GPU searches payloads for the rules' literals; a reload may bring the first ones. With auto the loops
// do it: on the way of live packets the search costs the host more with a GPU than without (docs/gpu.md).
func (d *Daemon) searchesOnGPU(cfg *config.Config) bool { return d.engine(cfg) == engineCUDA }

// loadLiterals gives the engines the literals of the present rules. Until then, and where a GPU has no room for them, the
// loops search themselves.
func (d *Daemon) loadLiterals() {
	if err := d.node.LoadLiterals(d.inspection.Literals()); err != nil {
		d.opt.Log.Error("engine", "result", "the loops search payloads", "error", err.Error())
	}
}

func (d *Daemon) writeInspection(w *metrics.Writer) {
	if d.inspection != nil && d.inspection.Enabled() {
		d.inspection.WriteMetrics(w)
	}
}

// statusRules is the number of rules that the status of the gateway has.
const statusRules = 20

// inspectionStatus returns what inspection has done, nil where there are no policies.
func (d *Daemon) inspectionStatus() *inspection.Status {
	if d.inspection == nil || !d.inspection.Enabled() {
		return nil
	}
	s := d.inspection.Status(statusRules)
	return &s
}

// maxRulesListed bounds the rules of one answer.
const maxRulesListed = 100_000

// showRules returns the policies, and the rules that have matched.
func (d *Daemon) showRules(r *http.Request) (any, error) {
	limit := statusRules
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxRulesListed {
			return nil, badRequest("limit is 1 to %d, not %q", maxRulesListed, text)
		}
		limit = n
	}
	return d.inspection.Status(limit), nil
}
