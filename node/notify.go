package node

import (
	"fmt"
	"net"
	"os"
)

// Notify lets units with Type=notify order themselves behind a process that serves, not
// one that was merely started. It tells the service manager how far the process has
// come, by the protocol of sd_notify(3): "READY=1", "STOPPING=1". Without a service
// manager that wants to know it does nothing.
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
