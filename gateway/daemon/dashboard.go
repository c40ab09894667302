package daemon

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/dashboard"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/l4/rolelink"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/metrics"
)

// looks is the state of the dashboard.
type looks struct {
	settings atomic.Pointer[dashboard.Settings]
	recent   dashboard.Recent
}

// serveAt serves metrics and dashboard at the addresses of a configuration. With an error they stay where they are.
func (d *Daemon) serveAt(cfg *config.Config) error {
	if err := d.node.SetMetrics(cfg.Metrics.Listen); err != nil {
		return err
	}
	if err := d.node.SetPages(cfg.Admin.Listen); err != nil {
		return errors.Join(err, d.node.SetMetrics(d.cfg.Metrics.Listen))
	}
	return nil
}

// useSettings has the dashboard serve by a configuration.
func (d *Daemon) useSettings(cfg *config.Config) {
	d.looks.settings.Store(&dashboard.Settings{Hosts: cfg.Admin.Hosts, Token: cfg.AdminToken()})
}

// topRows bounds the rows of each kind of top in the dashboard.
const topRows = 8

// dashboardHandler serves the dashboard. It runs once all is open.
func (d *Daemon) dashboardHandler() http.Handler {
	return dashboard.Handler(dashboard.Options{
		Settings: func() dashboard.Settings { return *d.looks.settings.Load() },
		Data:     d.dashboardData,
		Top:      func(ctx context.Context) (any, error) { return topOf(ctx, d, 2*time.Second, topRows) },
		Commands: d.adminHandler(), Log: d.opt.Log, Now: time.Now,
	})
}

func (d *Daemon) dashboardData() *dashboard.Data {
	st := d.status(d.gate.Status())
	data := &dashboard.Data{
		Version: st.Version, Config: st.Config, Now: time.Now(), Started: st.Started, Draining: d.node.Draining(), Commands: d.looks.settings.Load().Token != nil,
		Reload: st.Reload, Packets: st.Counts, Engine: st.Engine, Notices: d.looks.recent.Notices(), Loops: []dashboard.Loop{}, Backends: []dashboard.Backend{},
	}
	data.CPU, data.Memory = usage()
	data.Role = dashboardRole(st.Role)
	for _, l := range d.node.Loops() {
		s := l.Stats()
		data.Loops = append(data.Loops, dashboard.Loop{Received: s.Received, Iterations: s.Iterations, Busy: s.Busy, Sleeps: s.Sleeps})
	}
	if d.workers == nil {
		data.SetBackends(st.Gateway.Services, nil)
		return data
	}
	web := d.workers.Status(nil)
	data.SetBackends(st.Gateway.Services, web.Pools)
	took := l7control.Latency(d.workers)
	var latency []dashboard.Bucket
	for _, b := range took.Buckets(metrics.Nanoseconds) {
		latency = append(latency, dashboard.Bucket{Seconds: b.UpTo, Count: b.Count})
	}
	data.SetHTTP(&web, l7control.Routes(d.workers), latency, took.Count())
	return data
}

// dashboardRole returns the role as the dashboard has it, nil without one.
func dashboardRole(st *rolelink.Status) *dashboard.Role {
	if st == nil {
		return nil
	}
	r := &dashboard.Role{
		State: st.State.String(), Since: st.Last.At, Why: st.Last.Why, Trouble: []string{}, Peer: st.Peer.State.String(), Heard: st.Peer.Heard,
		Silent: st.Peer.Silent, Lease: st.Lease, Splits: st.Splits, Priority: st.Priority,
	}
	for _, trouble := range []struct {
		is   bool
		text string
	}{
		{st.Split, "split brain: " + st.By + " answers, too"},
		{st.HeldOff, "held off by " + st.By},
		{!st.Able, "a device has no link"},
		{st.CutOff, "no watched address answers"},
		{st.Peer.Heard && !st.Peer.Able, "a device of the other gateway has no link"},
		{st.Peer.Heard && st.Peer.CutOff, "the other gateway is cut off"},
		{st.Peer.Heard && st.Peer.State == role.Standby && !st.Peer.Synced, "the other gateway lacks connections"},
		{st.Differ, "the other gateway has other addresses"},
		{st.Peer.SameIndex, "both have the same sync.index"},
	} {
		if trouble.is {
			r.Trouble = append(r.Trouble, trouble.text)
		}
	}
	return r
}

// usage returns the processor time and the resident memory of the process.
func usage() (cpu float64, memory uint64) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseUint(fields[1], 10, 64)
			memory = pages * uint64(os.Getpagesize())
		}
	}
	return cpu, memory
}
