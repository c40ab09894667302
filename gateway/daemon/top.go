package daemon

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
	"github.com/millrace/millrace/l7/topk"
)

// showTop counts for the time that the request names, and answers then.
func (d *Daemon) showTop(r *http.Request) (any, error) {
	over, rows, err := admin.ParseTop(r.URL.Query())
	if err != nil {
		return nil, badRequest("%w", err)
	}
	return topOf(r.Context(), d, over, rows)
}

// topOf counts requests and packets for a time.
func topOf(ctx context.Context, d *Daemon, over time.Duration, rows int) (top admin.Top, err error) {
	before := d.gate.Status()
	began := time.Now()
	if d.workers != nil {
		top.Result, err = l7control.Top(ctx, d.workers, over, rows)
	} else {
		err = idle(ctx, over)
	}
	switch {
	case errors.Is(err, topk.ErrBusy):
		return top, &admin.Error{Message: err.Error(), Code: http.StatusServiceUnavailable}
	case err != nil:
		return top, err
	}
	now := d.gate.Status()
	took := time.Since(began)
	top.Seconds = took.Seconds()
	top.Services = busiest(&now, &before, took, rows)
	return top, nil
}

// idle waits for a time, or until ctx ends.
func idle(ctx context.Context, over time.Duration) error {
	timer := time.NewTimer(over)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busiest returns the backends with the most packets between two pictures of the services.
func busiest(now, before *l4control.Status, took time.Duration, rows int) []admin.ServiceTop {
	type key struct{ service, backend, address string }
	was := map[key]*l4control.BackendStatus{}
	for i := range before.Services {
		s := &before.Services[i]
		for k := range s.Backends {
			was[key{s.Name, s.Backends[k].Name, s.Backends[k].Address.String()}] = &s.Backends[k]
		}
	}
	each := func(now, before uint64) float64 { return admin.PerSecond(now, before, took) }
	list := []admin.ServiceTop{}
	for i := range now.Services {
		s := &now.Services[i]
		for k := range s.Backends {
			b := &s.Backends[k]
			w := was[key{s.Name, b.Name, b.Address.String()}]
			if w == nil {
				w = new(l4control.BackendStatus)
			}
			t := admin.ServiceTop{
				Service: s.Name, Backend: b.Name, Opened: each(b.Opened, w.Opened),
				Packets: each(b.ToPackets+b.FromPackets, w.ToPackets+w.FromPackets), Bytes: each(b.ToBytes+b.FromBytes, w.ToBytes+w.FromBytes),
			}
			if t.Packets > 0 || t.Opened > 0 {
				list = append(list, t)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b admin.ServiceTop) int { return cmp.Compare(b.Packets, a.Packets) })
	return list[:min(len(list), rows)]
}
