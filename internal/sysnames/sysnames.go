// Package sysnames resolves the names in packet filter expressions as programs of the system do: hosts by its resolver, the
// others by the files services, protocols, ethers and networks in /etc.
package sysnames

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/millrace/millrace/filter/expr"
)

// Names returns the functions that expr.Compile asks.
func Names() expr.Names {
	return expr.Names{
		Host: func(name string) []netip.Addr {
			addrs, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", name)
			if err != nil {
				return nil // Compile says that the name is not known
			}
			return addrs
		},
		Port: func(name, protocol string) (uint16, bool) {
			n, err := net.LookupPort(protocol, name)
			return uint16(n), err == nil
		},
		Protocol: func(name string) (uint8, bool) { return lookupProtocol(readTable("/etc/protocols"), name) },
		Ethernet: func(name string) ([6]byte, bool) { return lookupEther(readTable("/etc/ethers"), name) },
		Network:  func(name string) (netip.Addr, bool) { return lookupNetwork(readTable("/etc/networks"), name) },
	}
}

// tableLines calls f with the fields of each line of a table, without comments, until it returns true.
func tableLines(table string, f func(fields []string) bool) bool {
	for line := range strings.Lines(table) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) >= 2 && f(fields) {
			return true
		}
	}
	return false
}

// lookupProtocol reads protocols(5): name, number, aliases.
func lookupProtocol(table, name string) (number uint8, ok bool) {
	found := tableLines(table, func(f []string) bool {
		for i, n := range f {
			if i != 1 && n == name {
				v, err := strconv.ParseUint(f[1], 10, 8)
				number, ok = uint8(v), err == nil
				return ok
			}
		}
		return false
	})
	if !found && table == "" { // there is no such file
		return expr.Names{}.ProtocolNumber(name)
	}
	return number, ok
}

// lookupEther reads ethers(5): address, name.
func lookupEther(table, name string) (mac [6]byte, ok bool) {
	tableLines(table, func(f []string) bool {
		if !strings.EqualFold(f[1], name) {
			return false
		}
		hw, err := net.ParseMAC(f[0])
		ok = err == nil && len(hw) == len(mac)
		copy(mac[:], hw)
		return ok
	})
	return mac, ok
}

// lookupNetwork reads networks(5): name, number, aliases.
func lookupNetwork(table, name string) (addr netip.Addr, ok bool) {
	tableLines(table, func(f []string) bool {
		for i, n := range f {
			if i != 1 && strings.EqualFold(n, name) {
				number := f[1] + strings.Repeat(".0", max(3-strings.Count(f[1], "."), 0))
				a, err := netip.ParseAddr(number)
				addr, ok = a, err == nil && a.Is4()
				return ok
			}
		}
		return false
	})
	return addr, ok
}

// readTable reads a file of the system such as /etc/protocols; one that is absent is empty.
func readTable(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
