package lifetime

import (
	"fmt"
	"net"
	"os"
)

// Notify sends a state, "READY=1" or "STOPPING=1", to the service manager by the protocol of sd_notify(3), so that units with
// Type=notify start behind a process that serves, not one that was merely started. Without NOTIFY_SOCKET it does nothing.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if path[0] == '@' {
		path = "\x00" + path[1:] // the abstract namespace, unix(7)
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
