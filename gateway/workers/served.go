package workers

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/millrace/millrace/gateway/config"
)

// ErrNotServed says that a configuration asks for what workers do not do yet.
var ErrNotServed = errors.New("not served yet")

// Served returns an error that names what of a configuration is not served.
func Served(c *config.Config) error {
	var errs []error
	not := func(where, name, what string) {
		errs = append(errs, fmt.Errorf("%s %s: %s is %w", where, name, what, ErrNotServed))
	}
	if c.Stack == config.StackDevices && len(c.Listeners) > 0 {
		errs = append(errs, fmt.Errorf("`stack: devices` is %w", ErrNotServed))
	}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if l.Limits.ClientConnections > 0 {
			not("listener", l.Name, "limits.client_connections")
		}
	}
	pools := map[string]*config.Pool{}
	for i := range c.Pools {
		pools[c.Pools[i].Name] = &c.Pools[i]
	}
	for i := range c.Routes {
		for j := range c.Routes[i].Rules {
			u, name := &c.Routes[i].Rules[j], c.Routes[i].Name+"/"+c.Routes[i].Rules[j].Name
			if u.BodyBytes > 0 {
				not("rule", name, "body_bytes")
			}
			if u.Timeouts.Stream > 0 {
				not("rule", name, "timeouts.stream")
			}
			if u.Retry.Backoff > 0 {
				not("rule", name, "retry.backoff")
			}
			if mixedSticky(pools, u) {
				not("rule", name, "sticky of some of its pools")
			}
		}
	}
	for i := range c.Pools {
		p := &c.Pools[i]
		if p.Drain > 0 {
			not("pool", p.Name, "drain")
		}
		if p.Limits.Pending > 0 {
			not("pool", p.Name, "limits.pending")
		}
	}
	return errors.Join(errs...)
}

// mixedSticky reports whether pools of a rule have different cookies.
func mixedSticky(pools map[string]*config.Pool, u *config.Rule) bool {
	return slices.ContainsFunc(u.BackendRefs, func(r config.BackendRef) bool {
		return !reflect.DeepEqual(pools[r.Name].Sticky, pools[u.BackendRefs[0].Name].Sticky)
	})
}
