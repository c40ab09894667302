package config

import "github.com/millrace/millrace/internal/strictyaml"

// Problem is one error in a configuration file, or in a list that it names.
type Problem = strictyaml.Problem

// Error holds every problem of a configuration file, in the order of the file.
type Error = strictyaml.Error
