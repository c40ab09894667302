package workers

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/gateway/config"
)

// ErrNotServed says that a configuration asks for what workers do not do yet.
var ErrNotServed = errors.New("not served yet")

// Served returns an error that names what of a configuration is not served.
func Served(c *config.Config) error {
	if c.Stack != config.StackDevices {
		return nil
	}
	for i := range c.Listeners {
		if c.Listeners[i].HTTP3() {
			return fmt.Errorf("listener %s: HTTP/3 with `stack: devices` is %w", c.Listeners[i].Name, ErrNotServed)
		}
	}
	for i := range c.Pools {
		if c.Pools[i].Protocol == config.PoolH3 {
			return fmt.Errorf("pool %s: HTTP/3 with `stack: devices` is %w", c.Pools[i].Name, ErrNotServed)
		}
	}
	return nil
}
