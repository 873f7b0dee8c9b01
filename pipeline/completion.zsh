# inductor-debug: zsh completion. Install: eval "$(inductor-debug completion zsh)" in ~/.zshrc, after compinit
_inductor_debug_reply() {
    local -a found
    found=("${(@f)$("$@" zsh "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    found=(${found:#})
    if (( $#found )); then compadd -Q -S '' -- "${found[@]}"; else _default; fi
}
_inductor_debug() { _inductor_debug_reply "$words[1]" complete }
_inductor_debug_python() {
    if [[ " ${(j: :)words[1,CURRENT-1]} " == *" -m pipeline "* ]]; then
        _inductor_debug_reply "$words[1]" -m inductor_debug complete
    elif (( $+functions[_python] )); then _python "$@"; else _default; fi
}
autoload -Uz +X _python 2>/dev/null
compdef _inductor_debug inductor-debug
alias inductor-debug='noglob inductor-debug'  # stages=[capture] and model=res* are no patterns of file names
compdef _inductor_debug_python python python3
