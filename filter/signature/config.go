package signature

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseClasses reads a classification.config: lines of "config classification: NAME,TEXT,PRIORITY".
func ParseClasses(name, text string) (map[string]Class, error) {
	classes := map[string]Class{}
	line := 0
	for l := range strings.Lines(text) {
		line++
		code, _, _ := strings.Cut(strings.TrimSpace(l), "#")
		if code == "" {
			continue
		}
		body, ok := strings.CutPrefix(code, "config classification:")
		parts := strings.Split(body, ",")
		priority, err := strconv.Atoi(strings.TrimSpace(parts[len(parts)-1]))
		if !ok || len(parts) < 3 || err != nil || priority < 1 || priority > 255 {
			return nil, &Error{
				Name: name, Line: line, Column: 1, Source: strings.TrimRight(l, "\r\n"),
				Msg: "a line is config classification: NAME,TEXT,PRIORITY",
			}
		}
		classes[strings.TrimSpace(parts[0])] = Class{strings.TrimSpace(strings.Join(parts[1:len(parts)-1], ",")), priority}
	}
	return classes, nil
}

// ParseVars reads the variables of a suricata.yaml, or of a file that has only them, into c: lines of
// "NAME: VALUE" below address-groups: and port-groups:. The rest of the file is skipped.
func (c *Config) ParseVars(name, text string) error {
	if c.Addresses == nil {
		c.Addresses = map[string]string{}
	}
	if c.Ports == nil {
		c.Ports = map[string]string{}
	}
	var group map[string]string
	indent, line := 0, 0
	for l := range strings.Lines(text) {
		line++
		code := strings.TrimRight(l, "\r\n")
		if at := strings.Index(code, " #"); at >= 0 {
			code = code[:at]
		}
		key, value, ok := strings.Cut(strings.TrimSpace(code), ":")
		if strings.HasPrefix(key, "#") || strings.TrimSpace(code) == "" {
			continue
		}
		depth := len(code) - len(strings.TrimLeft(code, " "))
		switch {
		case key == "address-groups":
			group, indent = c.Addresses, depth
		case key == "port-groups":
			group, indent = c.Ports, depth
		case depth <= indent:
			group = nil
		case group != nil && !ok:
			return &Error{Name: name, Line: line, Column: depth + 1, Source: code, Msg: "a variable is NAME: VALUE"}
		case group != nil:
			group[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return nil
}

// Set sets one variable: "NAME=VALUE". A name that ends in PORTS or PORT is one of ports.
func (c *Config) Set(assignment string) error {
	name, value, ok := strings.Cut(assignment, "=")
	name = strings.TrimPrefix(name, "$")
	if !ok || name == "" || value == "" {
		return fmt.Errorf("%q is not NAME=VALUE", assignment)
	}
	to := &c.Addresses
	if strings.HasSuffix(name, "PORTS") || strings.HasSuffix(name, "PORT") {
		to = &c.Ports
	}
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[name] = value
	return nil
}
