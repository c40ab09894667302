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
	c := &controlsocket.Commands{Log: d.opt.Log, Name: "admin", Code: codeOf}
	c.Get("/v1/status", d.showStatus)
	c.Get("/v1/names", d.showNames)
	c.Get("/v1/top", d.showTop)
	c.Get("/v1/rules", d.showRules)
	c.Get("/v1/defence", func(*http.Request) (any, error) { return d.showDefence() })
	c.Handle("GET /v1/connections", func(w http.ResponseWriter, r *http.Request) { d.serveConnections(c, w, r) })
	c.Get("/v1/cache", func(*http.Request) (any, error) { return d.showCaches() })
	c.Get("/v1/cache/objects", d.showCacheObjects)
	c.Post("/v1/cache/purge", func(r *http.Request) (any, error) { return d.purgeCache(c, r) })
	c.Post("/v1/route", d.explainRoute)
	c.Post("/v1/reload", func(r *http.Request) (any, error) { return d.serveReload(c, r) })
	c.Post("/v1/upgrade", func(r *http.Request) (any, error) { return d.serveUpgrade(c, r) })
	c.PostLogged("/v1/defence/add", "defence add", d.addVerdict)
	c.PostLogged("/v1/defence/remove", "defence remove", d.removeVerdict)
	c.Post("/v1/role", func(r *http.Request) (any, error) { return d.serveRole(c, r) })
	c.PostLogged("/v1/announce", "announce", func(*http.Request) error { return d.announceOnOrder() })
	c.PostLogged("/v1/stop", "stop", func(*http.Request) error { d.Stop(); return nil })
	c.PostLogged("/v1/drain", "drain", d.drain)
	c.PostLogged("/v1/undrain", "undrain", d.undrain)
	c.PostLogged("/v1/weight", "weight", d.weight)
	return c
}

// serveReload reloads, and returns what has changed; with dry_run it returns what would change.
func (d *Daemon) serveReload(c *controlsocket.Commands, r *http.Request) (any, error) {
	dry := false
	for key, values := range r.URL.Query() {
		if dry = key == "dry_run" && slices.Equal(values, []string{"true"}); !dry {
			return nil, badRequest("%q is not understood, only dry_run=true", r.URL.RawQuery)
		}
	}
	if dry {
		return d.DryReload()
	}
	changes, err := d.Reload()
	c.Record("reload", err, LogChanges(&changes)...)
	return changes, err
}

// loggedChanges is the number of changes that a line of the log names.
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

// showStatus returns the status, of what the request selects or of all.
func (d *Daemon) showStatus(r *http.Request) (any, error) {
	sel, err := admin.ParseSelection(r.URL.Query())
	if err != nil {
		return nil, badRequest("%w", err)
	}
	gate, web, err := d.statusOf(sel)
	if err != nil {
		return nil, err
	}
	st := d.status(gate)
	st.Listeners = web
	return st, nil
}

// showNames returns the names of the services, or of the backends of the one that the request names.
func (d *Daemon) showNames(r *http.Request) (any, error) {
	q := r.URL.Query()
	service, backends := q["service"]
	if len(service) > 1 || len(q) > len(service) {
		return nil, badRequest("%q is not understood, only one service", r.URL.RawQuery)
	}
	names, err := d.names(), error(nil)
	if backends {
		names, err = d.backendNames(service[0])
	}
	return admin.Names{Names: names}, err
}

// explainRoute returns which rule a request matches.
func (d *Daemon) explainRoute(r *http.Request) (any, error) {
	var q l7control.Query
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if d.workers == nil {
		return nil, badRequest("the gateway has no listeners")
	}
	return d.workers.Explain(q)
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
		Reload: reload, Engine: engine, KernelPrograms: d.flows.status(), Inspection: d.inspectionStatus(), BGP: d.bgpStatus(), Role: d.roleStatus(),
		Counts: admin.Counts{
			Received: counts.Received, Originated: counts.Originated, Forwarded: counts.Forwarded, Delivered: counts.Delivered, Merged: counts.Merged, Dropped: counts.Dropped,
		},
	}
}

// serveConnections writes the connections that the request chooses, a line each.
func (d *Daemon) serveConnections(commands *controlsocket.Commands, w http.ResponseWriter, r *http.Request) {
	q, err := admin.ParseQuery(r.URL.Query())
	if err == nil {
		err = d.knownTo(&q)
	} else {
		err = badRequest("%w", err)
	}
	if err != nil {
		commands.Refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	e, n := json.NewEncoder(w), 0
	more := true
	one := func(c admin.Connection) bool {
		if matches(&q, &c) {
			n++
			more = e.Encode(c) == nil && n != q.Limit
		}
		return more
	}
	d.gate.Connections(stack.Now(), d.node.OnLoop, func(c l4control.Connection) bool { return one(admin.Connection{Connection: c}) })
	if d.workers != nil && more {
		d.workers.Connections(func(c l7control.Connection) bool { return one(admin.OfListener(&c)) })
	}
}

// knownTo reports names of a query that neither services nor pools nor listeners have.
func (d *Daemon) knownTo(q *admin.Query) error {
	if d.workers != nil && d.workers.Listens(q.Service) {
		return nil
	}
	if d.ofPool(q.Service) || d.workers != nil && q.Service == "" && q.Backend != "" {
		names, err := d.backendNames(q.Service)
		if err == nil && q.Backend != "" && !slices.Contains(names, q.Backend) {
			err = fmt.Errorf("%w %q", l7control.ErrUnknownBackend, q.Backend)
		}
		return err
	}
	return d.gate.Known(q.Service, q.Backend)
}

// matches reports whether the query chooses a connection.
func matches(q *admin.Query, c *admin.Connection) bool {
	return (q.Service == "" || q.Service == c.Service || c.Listener != "" && q.Service == c.Listener) && (q.Backend == "" || q.Backend == c.Backend) &&
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

var badRequest = controlsocket.BadRequest

// codeOf returns the HTTP status of an error that is no *admin.Error.
func codeOf(err error) int {
	switch {
	case errors.Is(err, l4control.ErrUnknownService), errors.Is(err, l4control.ErrUnknownBackend),
		errors.Is(err, l7control.ErrUnknownPool), errors.Is(err, l7control.ErrUnknownBackend), errors.Is(err, l7control.ErrUnknownCache):
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
