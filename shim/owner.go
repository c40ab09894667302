package shim

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

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

// firstFreePort is the lowest port that every user may bind (net.ipv4.ip_unprivileged_port_start of Linux).
const firstFreePort = 1024

// mayBind returns EACCES where the process may not bind the port: it needs CAP_NET_BIND_SERVICE when it binds, whoever its user is
// (capabilities(7)). Programs give their rights up to lose them, and service managers give this one alone.
func (c *channel) mayBind(port uint16) error {
	if port == 0 || port >= firstFreePort || c.s.cfg.PrivilegedPorts || c.s.mayBindLowPorts(c) {
		return nil
	}
	c.user.denied.Add(1)
	return syscall.EACCES
}

// mayBindLow reports whether the process with the channel may bind low ports now, and so does the one that it asks
// for. It has to be the process that has opened the channel: others may have that after its end, and its number another process.
func (c *channel) mayBindLow() bool {
	started, err := startTime(c.owner.PID)
	if err != nil || started != c.started || !bindsLow(uint32(c.owner.PID)) {
		return false
	}
	return !c.supervisor || c.asker == 0 || !c.samePIDs() || bindsLow(c.asker)
}

// bindsLow reports whether a thread has CAP_NET_BIND_SERVICE in the user namespace of the node, or acts as the user of a node that is
// not root's. In a user namespace of its own every program has all capabilities.
func bindsLow(tid uint32) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return false
	}
	if uid, err := effectiveUID(status); err == nil && uid != 0 && int(uid) == os.Geteuid() {
		return true
	}
	own, err := os.Readlink("/proc/self/ns/user")
	its, e := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", tid))
	return err == nil && e == nil && own == its && hasCapability(status, unix.CAP_NET_BIND_SERVICE)
}

// hasCapability reports whether a capability is effective, by the contents of /proc/PID/status.
func hasCapability(status []byte, capability uint) bool {
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && set>>capability&1 != 0
}

// startTime returns when a process has begun, in ticks since the machine has (starttime of proc_pid_stat(5)).
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	rest := b[bytes.LastIndexByte(b, ')')+1:] // the name of the program may have spaces and parentheses
	fields := bytes.Fields(rest)              // from the third on
	if len(fields) < 20 {
		return 0, errProtocol
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// effectiveUID returns the effective user, by the contents of /proc/PID/status.
func effectiveUID(status []byte) (uint32, error) {
	_, rest, _ := strings.Cut(string(status), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line) // real, effective, saved, file system
	if len(fields) != 4 {
		return 0, errProtocol
	}
	uid, err := strconv.ParseUint(fields[1], 10, 32)
	return uint32(uid), err
}
