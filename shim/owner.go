package shim

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/millrace/millrace/socket"
)

// process returns whose request it is: the process with the channel, or the one that it names, which has to be of
// the same user. Only what is shown depends on it: what the request may do is decided by the channel.
func (c *channel) process() *socket.Process {
	if !c.supervisor || c.asker == 0 || !c.samePIDs() {
		return c.owner
	}
	p, err := readProcess(c.asker)
	if err != nil || c.peer.uid != 0 && p.UID != c.peer.uid {
		return c.owner
	}
	p.Seccomp = true
	return p
}

// samePIDs reports whether the process with the channel has the numbers of processes that this one has.
func (c *channel) samePIDs() bool {
	if c.pids == 0 {
		own, err := os.Readlink("/proc/self/ns/pid")
		its, e := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.owner.PID))
		c.pids = -1
		if err == nil && e == nil && own == its {
			c.pids = 1
		}
	}
	return c.pids > 0
}

// readProcess returns the process that a thread is of.
func readProcess(tid uint32) (*socket.Process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return nil, err
	}
	p := &socket.Process{}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			p.Command = strings.TrimSpace(value)
		case "Tgid":
			p.PID, err = strconv.Atoi(fields[0])
		case "Uid":
			uid, e := strconv.ParseUint(fields[0], 10, 32)
			p.UID = uint32(uid)
			return p, e
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, errProtocol
}
