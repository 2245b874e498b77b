#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the manual pages of the command and of each verb, made from --help, and the shells' completions, where Debian's packages look for them.
#
#   cmake/man_pages.sh QK FOLDER      e.g. cmake/man_pages.sh build/release/qk /usr/share
set -eu
qk=$1
share=$2
mkdir -p "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
version=$("$qk" --version)

# page NAME WORD...: the words' help as a page. Headings of the help ("Options:") are sections, and its lines stay as they are.
page() {
    name=$1
    shift
    {
        printf '.TH %s 1 "" "%s" "User Commands"\n.SH NAME\n' "$(echo "$name" | tr 'a-z' 'A-Z')" "$version"
        "$qk" "$@" --help | sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/" |
            sed -e "1s/^/$(echo "$name" | sed 's/-/\\\\-/') \\\\- /" \
                -e '/^Usage: /{s/^Usage: //;i\
.SH SYNOPSIS
a\
.SH DESCRIPTION\
.nf
}' \
                -e 's/^\([A-Z][a-z ]*\):$/.fi\
.SH \U\1\E\
.nf/'
        echo .fi
    } >"$share/man/man1/$name.1"
}

page qk
for verb in $("$qk" --help | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do page "qk-$verb" "$verb"; done
"$qk" completion bash >"$share/bash-completion/completions/qk"
"$qk" completion zsh >"$share/zsh/vendor-completions/_qk"
"$qk" completion fish >"$share/fish/vendor_completions.d/qk.fish"
