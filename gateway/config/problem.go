package config

import "github.com/millrace/millrace/internal/strictyaml"

// Problem is one error in a configuration file, or in a list that it names.
type Problem = strictyaml.Problem

// Error holds the problems of a configuration file, in the order of the file.
type Error = strictyaml.Error

// showAll is the command that shows all problems where an Error's text has the first.
const showAll = "millrace gateway check --all"
