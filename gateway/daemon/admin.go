package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/controlsocket"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/stack"
)

// adminHandler serves what the package admin describes.
func (d *Daemon) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", d.serveStatus)
	mux.HandleFunc("GET /v1/names", d.serveNames)
	mux.HandleFunc("GET /v1/rules", d.serveRules)
	mux.HandleFunc("GET /v1/connections", d.serveConnections)
	mux.HandleFunc("GET /v1/defence", d.serveDefence)
	mux.HandleFunc("POST /v1/defence/add", d.command("defence add", d.addVerdict))
	mux.HandleFunc("POST /v1/defence/remove", d.command("defence remove", d.removeVerdict))
	mux.HandleFunc("POST /v1/reload", d.serveReload)
	mux.HandleFunc("POST /v1/route", d.serveRoute)
	mux.HandleFunc("POST /v1/announce", d.command("announce", func(*http.Request) error { d.Announce(); return nil }))
	mux.HandleFunc("POST /v1/stop", d.command("stop", func(*http.Request) error { d.Stop(); return nil }))
	mux.HandleFunc("POST /v1/drain", d.command("drain", d.drain))
	mux.HandleFunc("POST /v1/undrain", d.command("undrain", d.undrain))
	mux.HandleFunc("POST /v1/weight", d.command("weight", d.weight))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &admin.Error{Message: fmt.Sprintf("no %s %s here", r.Method, r.URL.Path), Code: http.StatusNotFound})
	})
	return mux
}

// command answers a request that changes something, and logs it.
func (d *Daemon) command(name string, do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := do(r)
		if err != nil {
			d.opt.Log.Error("admin", "command", name, "error", err.Error())
			refuse(w, err)
			return
		}
		d.opt.Log.Info("admin", "command", name, "result", "done")
		controlsocket.Reply(w, struct{}{})
	}
}

// serveReload reloads, and answers what has changed; with dry_run it answers what would change.
func (d *Daemon) serveReload(w http.ResponseWriter, r *http.Request) {
	dry := false
	for key, values := range r.URL.Query() {
		if dry = key == "dry_run" && slices.Equal(values, []string{"true"}); !dry {
			refuse(w, badRequest("%q is not understood, only dry_run=true", r.URL.RawQuery))
			return
		}
	}
	do := d.Reload
	if dry {
		do = d.DryReload
	}
	changes, err := do()
	switch {
	case err != nil && !dry:
		d.opt.Log.Error("admin", "command", "reload", "error", err.Error())
	case !dry:
		d.opt.Log.Info("admin", append([]any{"command", "reload", "result", "done"}, LogChanges(&changes)...)...)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	controlsocket.Reply(w, changes)
}

// loggedChanges is how many changes a line of the log names.
const loggedChanges = 3

// LogChanges returns changes as attributes of a line of the log: their numbers, and the first of them.
func LogChanges(c *admin.Changes) []any {
	args := []any{"added", c.Added, "removed", c.Removed, "changed", c.Changed}
	if len(c.List) == 0 {
		return args
	}
	var first []string
	for _, change := range c.List[:min(len(c.List), loggedChanges)] {
		first = append(first, change.String())
	}
	return append(args, "first", strings.Join(first, "; "))
}

func (d *Daemon) drain(r *http.Request) error {
	var req admin.Drain
	if err := body(r, &req); err != nil {
		return err
	}
	if req.Deadline < 0 {
		return badRequest("deadline is %v; it must not be negative", time.Duration(req.Deadline))
	}
	if d.ofPool(req.Service) || d.onlyPools() {
		return d.workers.Drain(req.Service, req.Backend, time.Duration(req.Deadline), req.Force)
	}
	return d.gate.Drain(req.Service, req.Backend, l4control.DrainOptions{Deadline: time.Duration(req.Deadline), Force: req.Force})
}

func (d *Daemon) undrain(r *http.Request) error {
	var req admin.Target
	if err := body(r, &req); err != nil {
		return err
	}
	if d.ofPool(req.Service) || d.onlyPools() {
		return d.workers.Undrain(req.Service, req.Backend)
	}
	return d.gate.Undrain(req.Service, req.Backend)
}

func (d *Daemon) weight(r *http.Request) error {
	var req admin.Weight
	if err := body(r, &req); err != nil {
		return err
	}
	weight := -1
	if req.Weight != nil {
		if weight = *req.Weight; weight < 0 || weight > config.MaxWeight {
			return badRequest("weight is %d; it must lie between 0 and %d", weight, config.MaxWeight)
		}
	}
	if d.ofPool(req.Service) || d.onlyPools() {
		return d.workers.SetWeight(req.Service, req.Backend, weight, req.Force)
	}
	return d.gate.SetWeight(req.Service, req.Backend, weight, req.Force)
}

// serveStatus writes the status, of what the request chooses or of all.
func (d *Daemon) serveStatus(w http.ResponseWriter, r *http.Request) {
	sel, err := admin.ParseSelection(r.URL.Query())
	if err != nil {
		refuse(w, badRequest("%w", err))
		return
	}
	gate, web, err := d.statusOf(sel)
	if err != nil {
		refuse(w, err)
		return
	}
	st := d.status(gate)
	st.Listeners = web
	controlsocket.Reply(w, st)
}

// serveNames writes the names of the services, or of the backends of the one that the request names.
func (d *Daemon) serveNames(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	service, backends := q["service"]
	if len(service) > 1 || len(q) > len(service) {
		refuse(w, badRequest("%q is not understood, only one service", r.URL.RawQuery))
		return
	}
	names, err := d.names(), error(nil)
	if backends {
		names, err = d.backendNames(service[0])
	}
	if err != nil {
		refuse(w, err)
		return
	}
	controlsocket.Reply(w, admin.Names{Names: names})
}

// serveRoute says which rule a request matches.
func (d *Daemon) serveRoute(w http.ResponseWriter, r *http.Request) {
	var q l7control.Query
	err := body(r, &q)
	if err == nil && d.workers == nil {
		err = badRequest("the gateway has no listeners")
	}
	if err != nil {
		refuse(w, err)
		return
	}
	e, err := d.workers.Explain(q)
	if err != nil {
		refuse(w, err)
		return
	}
	controlsocket.Reply(w, e)
}

// status returns what GET /v1/status shows.
func (d *Daemon) status(gate l4control.Status) admin.Status {
	counts, engine := d.node.Counters(), d.node.Engine()
	d.mu.Lock()
	defer d.mu.Unlock()
	reload := admin.Reload{Succeeded: d.reload.at, Failed: d.reload.err != nil}
	if reload.Failed {
		reload.Error = d.reload.err.Error()
	}
	return admin.Status{
		Version: d.opt.Build.Version, Config: d.file, Started: d.node.Started(), Gateway: gate,
		Reload: reload, Engine: engine, KernelPrograms: d.flows.status(), Inspection: d.inspectionStatus(),
		Counts: admin.Counts{
			Received: counts.Received, Originated: counts.Originated, Forwarded: counts.Forwarded, Delivered: counts.Delivered, Merged: counts.Merged, Dropped: counts.Dropped,
		},
	}
}

// serveConnections writes the connections that the request chooses, a line each.
func (d *Daemon) serveConnections(w http.ResponseWriter, r *http.Request) {
	q, err := admin.ParseQuery(r.URL.Query())
	if err == nil {
		err = d.gate.Known(q.Service, q.Backend)
	} else {
		err = badRequest("%w", err)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	e, n := json.NewEncoder(w), 0
	d.gate.Connections(stack.Now(), d.node.OnLoop, func(c l4control.Connection) bool {
		if !matches(&q, &c) {
			return true
		}
		n++
		return e.Encode(c) == nil && n != q.Limit
	})
}

// matches reports whether the query chooses a connection.
func matches(q *admin.Query, c *l4control.Connection) bool {
	return (q.Service == "" || q.Service == c.Service) && (q.Backend == "" || q.Backend == c.Backend) &&
		(!q.Client.IsValid() || q.Client.Contains(c.Client.Addr()))
}

// body reads the request: one JSON object.
func body(r *http.Request, to any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		return badRequest("the request needs an object such as {\"service\": \"web\", \"backend\": \"b1\"}: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("there is more after the request's object")
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return &admin.Error{Message: fmt.Errorf(format, args...).Error(), Code: http.StatusBadRequest}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	controlsocket.ReplyError(w, codeOf(err), err.Error())
}

// codeOf returns the HTTP status of an error.
func codeOf(err error) int {
	var e *admin.Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, l4control.ErrUnknownService), errors.Is(err, l4control.ErrUnknownBackend),
		errors.Is(err, l7control.ErrUnknownPool), errors.Is(err, l7control.ErrUnknownBackend):
		return http.StatusNotFound
	case errors.Is(err, l7control.ErrQuery):
		return http.StatusBadRequest
	case errors.Is(err, l4control.ErrRestart), errors.Is(err, l4control.ErrLastBackend), errors.Is(err, l7control.ErrLastBackend):
		return http.StatusConflict
	case errors.As(err, new(*config.Error)):
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}
