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
	if c.Stack == config.StackDevices && len(c.Listeners) > 0 {
		return fmt.Errorf("`stack: devices` is %w", ErrNotServed)
	}
	return nil
}
