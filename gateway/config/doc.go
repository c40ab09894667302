// Package config reads the gateway's configuration file and checks it.
//
// Load and Parse return a Config: plain structs with all defaults filled in, whose parts fit together. An
// Error reports every error in the file, each with line, column, the offending line and a
// suggestion. Config is what the gateway is built from; nothing here runs, listens or opens a device.
// The lists of client prefixes that a configuration names are read and compiled here too.
package config
