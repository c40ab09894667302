package resolve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"
)

// maxFile bounds what is read of resolv.conf and hosts.
const maxFile = 1 << 20

// hostsTTL bounds the age of an entry of /etc/hosts: changes of the file are seen within it.
const hostsTTL = 5 * time.Second

// errNoServers is the error where nothing says who is to be asked.
var errNoServers = errors.New("there is no name server: set resolver.servers, or add one to the file")

// readResolvConf returns the servers of a resolv.conf(5). It is read for each question, as network managers rewrite it.
func readResolvConf(path string) (list []netip.AddrPort, err error) {
	err = eachLine(path, func(words []string) {
		if len(words) < 2 || words[0] != "nameserver" {
			return
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			list = append(list, netip.AddrPortFrom(a, 53))
		}
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s: %w", path, errNoServers)
	}
	return list, err
}

// local returns the addresses of names that no server is asked for: localhost (RFC 6761 6.3), and those of /etc/hosts. Programs on
// the machine see them in the same way.
func (c *Client) local(name string) (Answer, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	var list []netip.Addr
	_ = eachLine(c.opt.Hosts, func(words []string) { // a machine may have no such file
		a, err := netip.ParseAddr(words[0])
		for _, w := range words[1:] {
			if err == nil && strings.EqualFold(strings.TrimSuffix(w, "."), name) {
				list = append(list, a.Unmap())
			}
		}
	})
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		list = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	a := Answer{TTL: hostsTTL}
	for _, addr := range list {
		if c.opt.Family == IPv4 && !addr.Is4() || c.opt.Family == IPv6 && addr.Is4() {
			continue
		}
		a.Targets = append(a.Targets, Target{netip.AddrPortFrom(addr, 0), 1})
	}
	return a, len(a.Targets) > 0
}

// eachLine calls f with the words of each line of a file that has some. A comment begins with # or ;.
func eachLine(path string, f func(words []string)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxFile))
	for lines.Scan() {
		line := lines.Text()
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		if words := strings.Fields(line); len(words) > 0 {
			f(words)
		}
	}
	return lines.Err()
}
