"""The scripts that ``inductor-debug completion`` prints. Each keeps what completed ``python`` before."""

BASH = r"""# inductor-debug: completion for bash. Install: eval "$(inductor-debug completion bash)" in ~/.bashrc
_inductor_debug_reply() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("$@" bash "$COMP_LINE" "$COMP_POINT" "$COMP_WORDBREAKS" 2>/dev/null)
}
_inductor_debug() {
    _inductor_debug_reply "$1" complete
    if [ ${#COMPREPLY[@]} -gt 0 ]; then compopt -o nospace 2>/dev/null; fi
}
_inductor_debug_python() {
    case " ${COMP_LINE:0:COMP_POINT}" in
        *" -m pipeline "*)
            _inductor_debug_reply "$1" -m inductor_debug complete
            if [ ${#COMPREPLY[@]} -gt 0 ]; then compopt -o nospace 2>/dev/null; fi ;;
        *)
            if [ -n "$_inductor_debug_python_before" ]; then "$_inductor_debug_python_before" "$@"; fi ;;
    esac
}
if declare -F _completion_loader >/dev/null; then _completion_loader python 2>/dev/null; fi
_inductor_debug_python_before=$(complete -p python 2>/dev/null | sed -n 's/.* -F \([^ ]*\).*/\1/p')
if [ "$_inductor_debug_python_before" = _inductor_debug_python ]; then _inductor_debug_python_before=; fi
complete -o bashdefault -o default -F _inductor_debug inductor-debug
complete -o bashdefault -o default -F _inductor_debug_python python python3
"""

ZSH = r"""# inductor-debug: zsh completion. Install: eval "$(inductor-debug completion zsh)" in ~/.zshrc, after compinit
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
compdef _inductor_debug_python python python3
"""

FISH = r"""# inductor-debug: completion for fish. Install: inductor-debug completion fish | source   in config.fish
function __inductor_debug_module
    string match -q -- '* -m pipeline *' (commandline -cp)
end
function __inductor_debug_reply
    $argv fish (commandline -cp) 2>/dev/null
end
complete -c inductor-debug -a '(__inductor_debug_reply (commandline -opc)[1] complete)'
for interpreter in python python3
    set -l module '(__inductor_debug_reply (commandline -opc)[1] -m inductor_debug complete)'
    complete -c $interpreter -n __inductor_debug_module -a $module
end
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""Shell → script."""
