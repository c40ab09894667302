package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/shim"
)

// rdmaEnvironment returns the environment in which a program finds the host's RDMA device, with --rdma.
func (f *execFlags) rdmaEnvironment(env []string) ([]string, error) {
	if !f.rdma {
		return env, nil
	}
	socket, err := filepath.Abs(stackd.RDMASocket(f.socket))
	if err != nil {
		return nil, err
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, notStarted{fmt.Errorf("the host has no RDMA device at %s: give it one by `millrace stack up --rdma`, or the key rdma of its configuration", socket), exitNoNode}
	}
	conn.Close()
	folder, files, err := rdma.Libraries()
	if errors.Is(err, rdma.ErrNoLibrary) {
		return nil, notStarted{err, exitNoLibrary}
	}
	if folder, err = shim.UnpackFolder(folder, files); err != nil {
		return nil, notStarted{err, exitCannotRun}
	}
	if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
		folder += ":" + old
	}
	for _, v := range [][2]string{{"MILLRACE_RDMA", socket}, {"LD_LIBRARY_PATH", folder}} {
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, v[0]+"=") })
		env = append(env, v[0]+"="+v[1])
	}
	return env, nil
}
