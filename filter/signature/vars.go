package signature

import (
	"fmt"
	"maps"
)

// Config defines the variables and classes that rules refer to. The zero value has the variables of Default and no classes.
type Config struct {
	Addresses map[string]string // by name without "$": a list of addresses, as in a rule
	Ports     map[string]string // by name without "$": a list of ports
	Classes   map[string]Class  // by classtype, of a classification.config

	// Read returns the text of a file that a rule in the file rules names (dataset load), beside that. Rules that name one are not
	// supported without it.
	Read func(rules, name string) (string, error)
}

// Class is one line of a classification.config.
type Class struct {
	Text     string
	Priority int
}

// Default returns the variables that Suricata's configuration has: private networks are the home network.
func Default() *Config {
	c := &Config{Addresses: map[string]string{
		"HOME_NET":     "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]",
		"EXTERNAL_NET": "!$HOME_NET",
		"AIM_SERVERS":  "$EXTERNAL_NET",
	}, Ports: map[string]string{
		"HTTP_PORTS": "80", "SHELLCODE_PORTS": "!80", "ORACLE_PORTS": "1521", "SSH_PORTS": "22", "DNP3_PORTS": "20000",
		"MODBUS_PORTS": "502", "FILE_DATA_PORTS": "[$HTTP_PORTS,110,143]", "FTP_PORTS": "21", "GENEVE_PORTS": "6081",
		"VXLAN_PORTS": "4789", "TEREDO_PORTS": "3544",
	}}
	for _, n := range []string{
		"HTTP_SERVERS", "SMTP_SERVERS", "SQL_SERVERS", "DNS_SERVERS", "TELNET_SERVERS", "DC_SERVERS",
		"DNP3_SERVER", "DNP3_CLIENT", "MODBUS_CLIENT", "MODBUS_SERVER", "ENIP_CLIENT", "ENIP_SERVER",
	} {
		c.Addresses[n] = "$HOME_NET"
	}
	return c
}

// environment is a Config with what has been parsed of it: rules share their address and port lists.
type environment struct {
	addresses, ports map[string]string
	classes          map[string]Class
	addrs            map[string]*Addrs // by text
	portSets         map[string]*Ports
	read             func(rules, name string) (string, error)
	sets             map[setKey][]string // files of values, shared
}

// environment returns c over the defaults.
func (c *Config) environment() *environment {
	d := Default()
	maps.Copy(d.Addresses, c.Addresses)
	maps.Copy(d.Ports, c.Ports)
	return &environment{
		addresses: d.Addresses, ports: d.Ports, classes: c.Classes,
		addrs: map[string]*Addrs{}, portSets: map[string]*Ports{}, read: c.Read, sets: map[setKey][]string{},
	}
}

// maxDepth bounds how deep variables and lists stand inside of one another: a variable may name itself.
const maxDepth = 16

var errDepth = fmt.Errorf("lists and variables stand more than %d deep inside of one another", maxDepth)
