package gateway

import (
	"context"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindTo makes sockets leave by a device (SO_BINDTODEVICE), whatever the routes say.
func bindTo(device string) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, _ string, raw syscall.RawConn) error {
		var err error
		ctl := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) })
		if ctl != nil {
			return ctl
		}
		if err != nil {
			return fmt.Errorf("bind to %s: %w", device, err)
		}
		return nil
	}
}
